/* Allocates persistent mappings: memory that a rewind does not restore. */
#include "base/persistent_map.h"

#include <sys/mman.h>

#include "base/scoreboard_layout.h"

static struct {
	uintptr_t start, end;
} mappings[16];

static size_t mapping_count;

void *surus_persistent_map(size_t size)
{
	enum { GUARD = 65536 }; /* the largest page size of the supported architectures */
	size_t rounded = (size + GUARD - 1) / GUARD * GUARD;
	/* Pages without access on both sides keep the kernel from merging this mapping with another. */
	char *memory = mmap(NULL, rounded + 2 * GUARD, PROT_NONE,
	        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED || mapping_count == sizeof(mappings) / sizeof(*mappings) ||
	    mprotect(memory + GUARD, rounded, PROT_READ | PROT_WRITE) != 0) {
		return NULL;
	}
	mappings[mapping_count].start = (uintptr_t)memory;
	mappings[mapping_count].end = (uintptr_t)memory + rounded + 2 * GUARD;
	mapping_count++;
	return memory + GUARD;
}

/* All allocations share one mapping, because each mapping lengthens /proc/self/maps, which a rewind
 * may have to read. */
void *surus_persistent_alloc(size_t size)
{
	enum { ARENA = 1024 * 1024, ALIGNMENT = 64 };
	static char *arena;
	static size_t used;
	size_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

	if (!arena) {
		arena = surus_persistent_map(ARENA);
	}
	if (!arena || rounded > ARENA - used) {
		return NULL;
	}
	used += rounded;
	return arena + used - rounded;
}

void surus_persistent_unmap(void *memory)
{
	for (size_t i = 0; i < mapping_count; i++) {
		if ((uintptr_t)memory > mappings[i].start && (uintptr_t)memory < mappings[i].end) {
			munmap((void *)mappings[i].start, mappings[i].end - mappings[i].start);
			mappings[i] = mappings[--mapping_count];
			return;
		}
	}
}

uintptr_t surus_persistent_until(uintptr_t start, uintptr_t end, uintptr_t *next)
{
	*next = end;
	for (size_t i = 0; i < mapping_count; i++) {
		if (start >= mappings[i].start && start < mappings[i].end) {
			return mappings[i].end < end ? mappings[i].end : end;
		}
		if (mappings[i].start > start && mappings[i].start < *next) {
			*next = mappings[i].start;
		}
	}
	return 0;
}
