/* What belongs to this process alone, and stays when everything else is put back. */
#include "surus.h"

#include <stdio.h>

#include "snapshot.h"

struct surus_self *surus_self;

bool surus_self_create(void)
{
	surus_self = surus_exempt_map(sizeof(*surus_self));
	if (!surus_self) {
		fprintf(stderr, "surus-php: no memory: %m\n");
		return false;
	}
	surus_self->line = &surus_self->nowhere;
	surus_self->event.body_fd = -1;
	surus_self->outbox.fd = -1;
	surus_self->inbox = -1;
	return surus_outbox_prepare();
}
