/* Provides the chunks of PHP's allocator, mostly of 2 MiB: takes back the chunks of a request and
 * keeps a few mapped for the next one. */
#include "rewind/memory/zend_chunks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <php.h>
#include <zend_alloc.h>
#include <zend_virtual_cwd.h>

#include "base/persistent_map.h"
#include "base/scoreboard_layout.h"

enum {
	PAGE = 4096,
	MAX_CHUNKS = 65536,
	KEPT = 16 << 20, /* bytes that stay mapped between requests */
};

static struct chunks {
	bool recording; /* the boot has ended */
	bool overflown;
	size_t count;
	struct chunk {
		char *start;
		size_t size;
		bool used;
	} chunks[MAX_CHUNKS];
} *c;

static void *map_aligned(size_t size, size_t alignment)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED) {
		return NULL;
	}
	if (((uintptr_t)memory & (alignment - 1)) == 0) {
		return memory;
	}
	munmap(memory, size);
	size_t room = size + alignment - PAGE;
	memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		return NULL;
	}
	char *aligned = (char *)(((uintptr_t)memory + alignment - 1) & ~(uintptr_t)(alignment - 1));
	if (aligned > memory) {
		munmap(memory, (size_t)(aligned - memory));
	}
	if (aligned + size < memory + room) {
		munmap(aligned + size, (size_t)(memory + room - aligned - size));
	}
	return aligned;
}

static void *allocate(zend_mm_storage *storage, size_t size, size_t alignment)
{
	(void)storage;
	if (!c->recording) {
		return map_aligned(size, alignment);
	}
	for (size_t i = 0; i < c->count; i++) {
		struct chunk *chunk = &c->chunks[i];
		if (!chunk->used && chunk->size == size &&
		        ((uintptr_t)chunk->start & (alignment - 1)) == 0) {
			chunk->used = true;
			/* PHP expects the map of free pages at a chunk's beginning to be empty: new, or freed
			 * page by page (zend_mm_chunk_init in Zend/zend_alloc.c). */
			memset(chunk->start, 0, PAGE);
			return chunk->start;
		}
	}
	char *memory = map_aligned(size, alignment);
	if (memory) {
		if (c->count < MAX_CHUNKS) {
			c->chunks[c->count++] = (struct chunk){.start = memory, .size = size, .used = true};
		} else {
			c->overflown = true;
		}
	}
	return memory;
}

static struct chunk *find(const void *start)
{
	for (size_t i = 0; i < c->count; i++) {
		if (c->chunks[i].start == start) {
			return &c->chunks[i];
		}
	}
	return NULL;
}

static void drop(struct chunk *chunk)
{
	munmap(chunk->start, chunk->size);
	*chunk = c->chunks[--c->count];
}

static void release(zend_mm_storage *storage, void *start, size_t size)
{
	(void)storage;
	if (!c->recording) {
		munmap(start, size);
		return;
	}
	struct chunk *chunk = find(start);
	if (!chunk) {
		return; /* a chunk of the boot, which must stay mapped for the next request */
	}
	if (chunk->size > ZEND_MM_CHUNK_SIZE) {
		drop(chunk);
	} else {
		chunk->used = false;
	}
}

/* Not supported: PHP copies to a new block, or keeps the larger one. */
static bool truncate_(zend_mm_storage *storage, void *start, size_t old_size, size_t new_size)
{
	(void)storage;
	(void)start;
	(void)old_size;
	(void)new_size;
	return false;
}

static bool extend(zend_mm_storage *storage, void *start, size_t old_size, size_t new_size)
{
	struct chunk *chunk = c->recording ? find(start) : NULL;
	(void)storage;

	if (!chunk) {
		return false;
	}
	/* Extends in place, so that a growing string is not copied each time. */
	void *behind = mmap(chunk->start + old_size, new_size - old_size, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (behind == MAP_FAILED) {
		return false;
	}
	if (behind != chunk->start + old_size) { /* the kernel ignores the flag */
		munmap(behind, new_size - old_size);
		return false;
	}
	chunk->size = new_size;
	return true;
}

bool surus_chunks_install(void)
{
	zend_mm_handlers handlers = {
		.chunk_alloc = allocate,
		.chunk_free = release,
		.chunk_truncate = truncate_,
		.chunk_extend = extend,
	};

	c = surus_persistent_map(sizeof(*c));
	/* PHP keeps one block from its start to the end of its first request and frees it into the heap
	 * of that time. Without that block, the heap of the start is empty. */
	virtual_cwd_deactivate();
	if (zend_memory_usage(false) > 0) {
		fprintf(stderr,
		        "surus-php: %zu bytes of PHP's memory are in use before the boot, which the engine "
		        "`rewind` could not free; please report it with the extensions that are loaded "
		        "(php -m)\n",
		        zend_memory_usage(false));
		exit(70);
	}
	zend_mm_heap *heap = c ? zend_mm_startup_ex(&handlers, NULL, 0) : NULL;
	if (!heap) {
		return false;
	}
	zend_mm_set_heap(heap);
	zend_set_memory_limit(PG(memory_limit));
	return true;
}

void surus_chunks_record(void)
{
	c->recording = true;
}

void surus_chunks_pause(void)
{
	c->recording = false;
	for (size_t i = c->count; i-- > 0;) {
		if (!c->chunks[i].used) {
			drop(&c->chunks[i]);
		}
	}
	c->count = 0;
}

const char *surus_chunks_end(void)
{
	size_t kept = 0;

	if (c->overflown) {
		return "memory: too many blocks of memory were allocated";
	}
	for (size_t i = c->count; i-- > 0;) {
		struct chunk *chunk = &c->chunks[i];
		if (chunk->size == ZEND_MM_CHUNK_SIZE && kept + chunk->size <= KEPT) {
			chunk->used = false;
			kept += chunk->size;
		} else {
			drop(chunk);
		}
	}
	return NULL;
}

uintptr_t surus_chunks_until(uintptr_t at, uintptr_t *next)
{
	for (size_t i = 0; i < c->count; i++) {
		uintptr_t start = (uintptr_t)c->chunks[i].start, end = start + c->chunks[i].size;

		if (at >= start && at < end) {
			return end;
		}
		if (start > at && start < *next) {
			*next = start;
		}
	}
	return 0;
}

size_t surus_chunks_pages(void)
{
	size_t bytes = 0;
	for (size_t i = 0; i < c->count; i++) {
		bytes += c->chunks[i].size;
	}
	return bytes / PAGE;
}
