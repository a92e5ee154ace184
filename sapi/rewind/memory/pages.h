/* Finds the pages of the snapshot that were written since the checkpoint, and restores them. */
#ifndef SURUS_REWIND_MEMORY_PAGES_H
#define SURUS_REWIND_MEMORY_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SURUS_REGIONS = 4096 };

/* The snapshot: the memory file, and the place of each part in memory. */
struct surus_copy {
	const unsigned char *bytes; /* the file, mapped read-only */
	size_t size;
	struct surus_region {
		uintptr_t start, end;
		size_t offset; /* in the file */
		int prot;
		bool anonymous; /* no file behind it: untouched pages are zeros */
	} regions[SURUS_REGIONS];
	size_t region_count;
};

/* Allocates the bookkeeping; before the snapshot. */
bool surus_pages_create(void);

/* In the prototype process: starts with the pages of this copy, whose `bytes` may still be missing.
 * NULL, or why that failed. The descriptor is that of /proc/self/pagemap. */
const char *surus_pages_begin(const struct surus_copy *copy, int pagemap);

/* In a worker: sets the checkpoint. Pages written so far are its own originals. False: too many. */
bool surus_pages_checkpoint(int pagemap);

/* Finds the written pages. NULL, or why that failed. */
const char *surus_pages_check(void);

/* Restores them. Only after surus_pages_check(). */
void surus_pages_restore(void);

/* Compares every byte; returns the first address that differs from the checkpoint, or NULL. */
const void *surus_pages_difference(void);

#endif
