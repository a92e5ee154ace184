/* Finds the pages of the snapshot that were written since the checkpoint, and restores them.
 *
 * A written page is anonymous (/proc/self/pagemap). It is compared with its original after each
 * request and stays in this hot set until it has not differed for long.
 * docs/internals/rewind-memory.md has more. */
#include "rewind/memory/pages.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/persistent_map.h"
#include "base/process_state.h"
#include "base/scoreboard_layout.h"
#include "php/execution_time.h"
#include "rewind/memory/copy_back.h"
#include "rewind/memory/zend_heap.h"

enum {
	PAGE = 4096,
	HOT_BUDGET = 4096, /* pages; a request that writes more than these 16 MiB releases them */
	/* requests; four times as many for each time that the page was needed again soon */
	IDLE_LIMIT = 256,
	MAX_COOLED = 5,
	/* requests; comparing a page in all of them costs about as much as one page fault and one
	 * scan */
	SOON = 1024,
	MAX_HOT = 1 << 20,
};

struct hot {
	unsigned char *page;
	const unsigned char *original;
	uint32_t number; /* in the memory file */
	/* unchanged requests in a row, and after how many the page is released */
	uint32_t idle, idle_limit;
};

/* State of a page of the memory file. */
struct page {
	uint16_t own; /* its number in this worker's own file, from 1; 0: not there */
	bool hot;
	bool free; /* free memory of PHP's heap, whose content does not matter */
	unsigned char cooled; /* how often it was released and needed again soon */
	uint32_t cooled_at; /* the request before which it was last released */
};

static struct pages {
	const struct surus_copy *copy;
	int pagemap;
	struct page *known; /* one per page of the memory file */
	const unsigned char *own; /* this worker's own file, mapped read-only */
	struct hot hot[MAX_HOT];
	size_t hot_count;
	uint32_t requests;
	bool has_idle; /* a hot page can be released */
	/* page faults at the last scan; -1: a scan is needed */
	long faults;
	surus_copy_back *restore;
	uint64_t entries[4096];
} *p;

static bool is_anonymous(uint64_t entry)
{
	bool present = entry >> 63 & 1, swapped = entry >> 62 & 1, of_file = entry >> 61 & 1;
	return (present || swapped) && !of_file;
}

bool surus_pages_create(void)
{
	p = surus_persistent_map(sizeof(*p));
	return p != NULL;
}

const char *surus_pages_begin(const struct surus_copy *copy, int pagemap)
{
	p->copy = copy;
	p->restore = surus_copy_back_fastest();
	if (p->known) {
		surus_persistent_unmap(p->known);
	}
	p->known = surus_persistent_map(copy->size / PAGE * sizeof(*p->known));
	if (!p->known) {
		return "cannot allocate the table of pages";
	}
	if (pread(pagemap, p->entries, 8, (off_t)((uintptr_t)p / PAGE * 8)) != 8 ||
	        !is_anonymous(p->entries[0])) {
		return "/proc/self/pagemap does not show anonymous pages";
	}
	return NULL;
}

/* The original of page `number` of the memory file. */
static const unsigned char *original(size_t number)
{
	size_t own = p->known[number].own;
	return own ? p->own + (own - 1) * PAGE : p->copy->bytes + number * PAGE;
}

static bool heat(const struct surus_region *r, uintptr_t page)
{
	size_t number = (r->offset + (page - r->start)) / PAGE;
	struct page *known = &p->known[number];

	if (known->hot || known->free) {
		return true;
	}
	if (p->hot_count == MAX_HOT) {
		return false;
	}
	/* Some pages are written every few thousand requests, for example when OPcache checks files or
	 * a session is deleted. */
	if (p->requests - known->cooled_at > SOON) {
		known->cooled = 0;
	}
	known->hot = true;
	p->hot[p->hot_count++] = (struct hot){
		.page = (unsigned char *)page,
		.original = original(number),
		.number = (uint32_t)number,
		.idle_limit = IDLE_LIMIT << 2 * known->cooled,
	};
	return true;
}

/* Adds every written page to the hot set. */
static bool scan(void)
{
	for (size_t i = 0; i < p->copy->region_count; i++) {
		const struct surus_region *r = &p->copy->regions[i];
		for (uintptr_t at = r->start; at < r->end;) {
			size_t pages = (r->end - at) / PAGE;
			size_t want = pages < sizeof(p->entries) / sizeof(*p->entries) ? pages
			        : sizeof(p->entries) / sizeof(*p->entries);
			ssize_t got = pread(p->pagemap, p->entries, want * 8, (off_t)(at / PAGE * 8));
			if (got <= 0) {
				return false;
			}
			for (size_t n = 0; n < (size_t)got / 8; n++) {
				if (is_anonymous(p->entries[n]) && !heat(r, at + n * PAGE)) {
					return false;
				}
			}
			at += (size_t)got / 8 * PAGE;
		}
	}
	return true;
}

static long faults(void)
{
	struct rusage usage;
	/* RUSAGE_THREAD costs half as much. */
	int who = __libc_single_threaded ? RUSAGE_THREAD : RUSAGE_SELF;
	if (getrusage(who, &usage) != 0) {
		return -1;
	}
	surus_execution_time_save(who, &usage);
	/* A fault that was retried because another process held the page counts as a major one. */
	return usage.ru_minflt + usage.ru_majflt;
}

/* --- the checkpoint --- */

static const struct surus_region *region_of(uintptr_t page)
{
	static size_t last; /* usually the same again */

	for (size_t i = 0; i < p->copy->region_count; i++) {
		size_t at = (last + i) % p->copy->region_count;
		if (page >= p->copy->regions[at].start && page < p->copy->regions[at].end) {
			last = at;
			return &p->copy->regions[at];
		}
	}
	return NULL;
}

static void mark_free(uintptr_t page)
{
	const struct surus_region *r = region_of(page);

	if (r) {
		p->known[(r->offset + (page - r->start)) / PAGE].free = true;
	}
}

/* Moves the pages that this worker and the prototype process have written since the snapshot into a
 * file of this worker, mapped in place. So later writes to these pages can be detected, too. */
static bool keep_own(void)
{
	size_t size = p->hot_count * PAGE;
	int file = (int)syscall(SYS_memfd_create, "surus-own", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	bool complete = file >= 0 && ftruncate(file, (off_t)size) == 0;

	for (size_t i = 0; complete && i < p->hot_count; i++) {
		complete = pwrite(file, p->hot[i].page, PAGE, (off_t)(i * PAGE)) == PAGE;
	}
	/* As in snapshot.c. */
	fcntl(file, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	if (complete && size > 0) {
		p->own = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
		complete = p->own != MAP_FAILED;
	}
	for (size_t i = 0; complete && i < p->hot_count;) {
		size_t run = 1;
		int prot = region_of((uintptr_t)p->hot[i].page)->prot;
		while (i + run < p->hot_count && p->hot[i + run].page == p->hot[i].page + run * PAGE &&
		       region_of((uintptr_t)p->hot[i + run].page)->prot == prot) {
			run++;
		}
		complete = mmap(p->hot[i].page, run * PAGE, prot, MAP_PRIVATE | MAP_FIXED, file,
		        (off_t)(i * PAGE)) != MAP_FAILED;
		for (size_t n = i; n < i + run; n++) {
			p->known[p->hot[n].number] = (struct page){.own = (uint16_t)(n + 1)};
		}
		i += run;
	}
	close(file);
	p->hot_count = 0;
	return complete;
}

bool surus_pages_checkpoint(int pagemap)
{
	p->pagemap = pagemap;
	if (!scan() || p->hot_count > HOT_BUDGET || !keep_own()) {
		return false;
	}
	surus_heap_each_free(mark_free);
	p->faults = -1;
	return true;
}

/* --- restoring --- */

/* Returns hot pages to the kernel: all, or those that have been idle for long. Their mapping then
 * shows the file again. */
static bool cool(bool all)
{
	size_t kept = 0;

	for (size_t i = 0; i < p->hot_count;) {
		size_t run = 0;
		while (i + run < p->hot_count && p->hot[i + run].page == p->hot[i].page + run * PAGE &&
		       (all || p->hot[i + run].idle >= p->hot[i + run].idle_limit / 2)) {
			run++;
		}
		if (run == 0) {
			p->hot[kept++] = p->hot[i++];
			continue;
		}
		if (madvise(p->hot[i].page, run * PAGE, MADV_DONTNEED) != 0) {
			return false;
		}
		for (size_t n = i; n < i + run; n++) {
			struct page *known = &p->known[p->hot[n].number];
			known->hot = false;
			/* If all are released, the reason is not idleness. */
			known->cooled = all ? 0 : known->cooled + (known->cooled < MAX_COOLED);
			known->cooled_at = p->requests;
		}
		i += run;
	}
	p->hot_count = kept;
	p->has_idle = false;
	return true;
}

const char *surus_pages_check(void)
{
	/* The kernel counts no fault if Surus writes to a page (php/slow_request.c). */
	bool is_written = surus_process->was_interrupted;

	surus_process->was_interrupted = false;
	if (p->faults < 0 || is_written || faults() != p->faults) {
		if (!scan()) {
			return p->hot_count == MAX_HOT ? "memory: the request wrote too many pages"
			        : "memory: cannot read which pages were written (/proc/self/pagemap)";
		}
		p->faults = -1;
	}
	if ((p->hot_count > HOT_BUDGET || p->has_idle) && !cool(p->hot_count > HOT_BUDGET)) {
		return "memory: cannot release written pages (madvise)";
	}
	return NULL;
}

void surus_pages_restore(void)
{
	for (size_t i = 0; i < p->hot_count; i++) {
		struct hot *hot = &p->hot[i], *next = i + 1 < p->hot_count ? hot + 1 : hot;
		if (p->restore(hot->page, hot->original, PAGE, next->page, next->original)) {
			hot->idle = 0;
		} else if (++hot->idle >= hot->idle_limit) {
			p->has_idle = true;
		}
	}
	p->requests++;
	if (p->faults < 0) {
		p->faults = faults();
	}
}

const void *surus_pages_difference(void)
{
	for (size_t i = 0; i < p->copy->region_count; i++) {
		const struct surus_region *r = &p->copy->regions[i];
		for (uintptr_t page = r->start; page < r->end; page += PAGE) {
			size_t number = (r->offset + (page - r->start)) / PAGE;
			const unsigned char *before = original(number);
			if (!p->known[number].free && memcmp((void *)page, before, PAGE) != 0) {
				for (size_t b = 0; b < PAGE; b++) {
					if (((unsigned char *)page)[b] != before[b]) {
						return (void *)(page + b);
					}
				}
			}
		}
	}
	return NULL;
}
