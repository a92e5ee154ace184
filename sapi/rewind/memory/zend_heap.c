/* Pads the heap of PHP's allocator at the end of the boot, so that requests use pages of their own.
 *
 * PHP does not export the layout of a chunk (Zend/zend_alloc.c). The code finds the used part of it
 * and verifies it; if anything is unexpected, it does nothing. docs/internals/rewind-memory.md says
 * why. */
#include "rewind/memory/zend_heap.h"

#include <stdlib.h>
#include <string.h>

#include <php.h>
#include <zend_alloc.h>

#include "base/scoreboard_layout.h"

enum { BITS = 64, WORDS = ZEND_MM_PAGES / BITS };

/* The beginning of a chunk. The map of used pages, a bit per page, follows later; after it, 32 bits
 * per page say what the page is used for. */
struct chunk {
	void *heap;
	struct chunk *next, *prev; /* of a circular list */
};

static size_t used_at; /* offset of that map; 0: unknown */

static struct chunk *chunk_of(const void *memory)
{
	return (struct chunk *)((uintptr_t)memory & ~(ZEND_MM_CHUNK_SIZE - 1));
}

/* The first chunk contains the heap itself. */
static struct chunk *main_chunk(void)
{
	return chunk_of(zend_mm_get_heap());
}

static size_t page_of(const void *memory)
{
	return ((uintptr_t)memory & (ZEND_MM_CHUNK_SIZE - 1)) / ZEND_MM_PAGE_SIZE;
}

static const uint64_t *used(const struct chunk *chunk)
{
	return (const uint64_t *)((const char *)chunk + used_at);
}

static bool is_used(const uint64_t *map, size_t page)
{
	return map[page / BITS] >> page % BITS & 1;
}

/* Whether the map of used pages is at `at`: it must show a block that exists, and not any more once
 * it is freed. */
static bool is_used_map(size_t at)
{
	enum { PAGES = 3 };
	char *block = emalloc(PAGES * ZEND_MM_PAGE_SIZE);
	const struct chunk *chunk = chunk_of(block);
	const uint64_t *map = (const uint64_t *)((const char *)chunk + at);
	const uint32_t *info = (const uint32_t *)(map + WORDS);
	size_t first = page_of(block);
	/* ZEND_MM_LRUN */
	bool matches = chunk->next->prev == chunk && info[first] == (0x40000000 | PAGES);

	for (size_t page = first; page < first + PAGES; page++) {
		matches &= is_used(map, page);
	}
	efree(block);
	for (size_t page = first; page < first + PAGES; page++) {
		matches &= !is_used(map, page);
	}
	return matches;
}

static bool find_used(void)
{
	struct chunk *chunk = main_chunk();

	if (chunk->heap != zend_mm_get_heap()) {
		return false;
	}
	/* A chunk uses its first page itself, so the map begins with a 1 and the next table with a
	 * block of one page. */
	for (size_t at = sizeof(*chunk); !used_at &&
	        at + (WORDS * 8) + ZEND_MM_PAGES * 4 <= ZEND_MM_PAGE_SIZE; at += 8) {
		const uint64_t *map = (const uint64_t *)((const char *)chunk + at);
		if (is_used(map, 0) && *(const uint32_t *)(map + WORDS) == (0x40000000 | 1) &&
		        is_used_map(at)) {
			used_at = at;
		}
	}
	return used_at != 0;
}

/* The used pages of a chunk. */
struct before {
	struct chunk *chunk;
	uint64_t used[WORDS];
};

static struct before *save_used(size_t *count)
{
	struct chunk *first = main_chunk(), *chunk = first;
	struct before *before;

	*count = 0;
	do {
		++*count;
		chunk = chunk->next;
	} while (chunk != first);
	before = malloc(*count * sizeof(*before));
	for (size_t i = 0; before && i < *count; i++, chunk = chunk->next) {
		before[i].chunk = chunk;
		memcpy(before[i].used, used(chunk), sizeof(before[i].used));
	}
	return before;
}

static bool was_used(const struct before *before, size_t count, const void *memory)
{
	static size_t last; /* usually the same again */

	for (size_t i = 0; i < count; i++) {
		size_t at = (last + i) % count;
		if (before[at].chunk == chunk_of(memory)) {
			last = at;
			return is_used(before[at].used, page_of(memory));
		}
	}
	return false;
}

/* Allocates all free blocks of `size` in used pages, for good. Returns a block in a new page. */
static void *take_gaps(const struct before *before, size_t count, size_t size)
{
	void *block;

	do {
		block = emalloc(size);
	} while (was_used(before, count, block));
	return block;
}

#define SIZE_OF_BIN(number, size, elements, pages, x, y) size,

static const size_t bins[] = {ZEND_MM_BINS_INFO(SIZE_OF_BIN, x, y)};
enum { BINS = sizeof(bins) / sizeof(*bins) };

static void fill_gaps(void)
{
	void *blocks[BINS];
	size_t count;

	zend_mm_gc(zend_mm_get_heap());
	struct before *before = save_used(&count);
	for (size_t i = 0; before && i < BINS; i++) {
		blocks[i] = take_gaps(before, count, bins[i]);
	}
	for (size_t i = 0; before && i < BINS; i++) {
		efree(blocks[i]);
	}
	free(before);
	/* Frees the new pages again. */
	zend_mm_gc(zend_mm_get_heap());
}

static void set_limit(size_t bytes)
{
	/* The first call may only free chunks in reserve. */
	zend_set_memory_limit(bytes);
	if (zend_set_memory_limit(bytes) != SUCCESS) {
		zend_set_memory_limit(zend_memory_usage(true));
	}
}

void surus_heap_pad(void)
{
	if (!is_zend_mm()) {
		return;
	}
	/* Filling the gaps must not fail because less than a chunk is left. */
	zend_set_memory_limit(SIZE_MAX);
	zend_try {
		if (find_used()) {
			fill_gaps();
		}
	} zend_catch {
		CG(unclean_shutdown) = 0; /* the remaining gaps only cost time */
	} zend_end_try();
	set_limit((size_t)PG(memory_limit));
	zend_memory_reset_peak_usage();
}

void surus_heap_each_free(void (*each)(uintptr_t page))
{
	if (!used_at) {
		return;
	}
	struct chunk *first = main_chunk(), *chunk = first;
	do {
		for (size_t page = 0; page < ZEND_MM_PAGES; page++) {
			if (!is_used(used(chunk), page)) {
				each((uintptr_t)chunk + page * ZEND_MM_PAGE_SIZE);
			}
		}
		chunk = chunk->next;
	} while (chunk != first);
}
