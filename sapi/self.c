/* What belongs to this process alone, and stays when everything else is put back. */
#include "surus.h"

#include <stdio.h>
#include <sys/mman.h>

struct surus_self *surus_self;

bool surus_self_create(void)
{
	enum { PAGE = 65536 }; /* the largest page of the architectures that we run on */
	size_t size = (sizeof(struct surus_self) + PAGE - 1) / PAGE * PAGE;
	/* Pages without access on both sides keep the kernel from merging this mapping with another. */
	char *memory = mmap(NULL, size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED || mprotect(memory + PAGE, size, PROT_READ | PROT_WRITE) != 0) {
		fprintf(stderr, "surus-php: no memory: %m\n");
		return false;
	}
	surus_self = (struct surus_self *)(memory + PAGE);
	surus_self->line = &surus_self->nowhere;
	surus_self->event.body_fd = -1;
	surus_self->outbox.fd = -1;
	return true;
}
