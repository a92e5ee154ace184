/* The pages of the snapshot: which have been written since the mark, and how they get their bytes
 * back. */
#ifndef SURUS_REWIND_MEMORY_PAGES_H
#define SURUS_REWIND_MEMORY_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SURUS_REGIONS = 4096 };

/* A copy of the memory of this process: the file, and where in memory it belongs. */
struct surus_copy {
	const unsigned char *bytes; /* the file, mapped to be read */
	size_t size;
	struct surus_region {
		uintptr_t start, end;
		size_t offset; /* in the file */
		int prot;
		bool anonymous; /* no file is behind it: what nobody has touched is zeros */
	} regions[SURUS_REGIONS];
	size_t region_count;
};

/* Makes room for what is noted here, as surus_mappings_prepare. */
bool surus_pages_prepare(void);

/* In the template: here are the pages of this copy, of which `bytes` may still be missing. NULL, or
 * why they cannot be known. The descriptor is that of /proc/self/pagemap. */
const char *surus_pages_begin(const struct surus_copy *copy, int pagemap);

/* In a worker: what is written from here on is put back; what has been written is its own
 * beginning. False: that is too much. */
bool surus_pages_mark(int pagemap);

/* Finds out which have been written. NULL, or why that cannot be. */
const char *surus_pages_check(void);

/* Puts them back. After surus_pages_check only. */
void surus_pages_put_back(void);

/* Compares every byte; the first address that differs from the mark, or NULL. */
const void *surus_pages_difference(void);

#endif
