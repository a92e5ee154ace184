/* What belongs to this process alone, and stays when everything else is put back. */
#include "base/process_state.h"

#include <stdio.h>
#include <unistd.h>

#include "base/exit_status.h"
#include "base/persistent_map.h"

struct surus_self *surus_self;

bool surus_self_create(void)
{
	surus_self = surus_persistent_alloc(sizeof(*surus_self));
	if (!surus_self) {
		return false;
	}
	surus_self->line = &surus_self->nowhere;
	return true;
}

void surus_worker_speak(void)
{
	dup2(surus_self->log, STDOUT_FILENO);
	dup2(surus_self->log, STDERR_FILENO);
	close(surus_self->log);
}

_Noreturn void surus_worker_cannot_begin(const char *why)
{
	dprintf(STDERR_FILENO, "surus-php: a worker cannot begin: %s\n", why);
	_exit(SURUS_EXIT_SETUP);
}

