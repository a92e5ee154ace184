/* The pages of the snapshot: which have been written since the mark, and how they get their bytes
 * back.
 *
 * A page that nobody has written is the memory file's own, shared by all workers; one that has been
 * written is anonymous (/proc/self/pagemap tells them apart). An anonymous page stays so: it is
 * compared with its old bytes after each event, and gets back those that differ. These pages are
 * the hot set. One that has not differed for long is the file's again. Free pages of PHP's heap are
 * nobody's and stay as they are.
 *
 * What a worker finds written when it begins, is its own beginning, and lies in a file of its
 * own. */
#include "rewind/memory/pages.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/persistent_map.h"
#include "base/scoreboard_layout.h"
#include "php/execution_time.h"
#include "rewind/memory/copy_back.h"
#include "rewind/memory/zend_heap.h"

enum {
	PAGE = 4096,
	HOT_BUDGET = 4096, /* pages; a request that writes more than these 16 MiB gives them back */
	/* events; four times as many each time that the page has been needed again soon all the same */
	PATIENCE = 256,
	MAX_COOLED = 5,
	/* events; to compare a page in all of them costs about as much as to fault it in and to look
	 * for it once */
	SOON = 1024,
	MAX_HOT = 1 << 20,
};

struct hot {
	unsigned char *page;
	const unsigned char *original;
	uint32_t number;       /* in the memory file */
	/* events in a row that have not changed it, and after how many it is given back */
	uint32_t idle, patience;
};

/* What is known of a page of the memory file. */
struct page {
	uint16_t own; /* its number in this worker's own file, from 1; 0 when it is not there */
	bool hot;
	bool loose; /* free memory of PHP's heap, in which nobody looks for anything */
	unsigned char cooled; /* how often it has been given back, and needed again soon */
	uint32_t cooled_at;   /* the event before which it was given back last */
};

static struct pages {
	const struct surus_copy *copy;
	int pagemap;
	struct page *known; /* one for each page of the memory file */
	const unsigned char *own; /* this worker's own file, mapped to be read */
	struct hot hot[MAX_HOT];
	size_t hot_count;
	uint32_t events;
	bool impatient; /* a hot page is to be given back */
	/* there had been when the written pages were found; -1: they are to be looked for */
	long faults;
	surus_restore *restore;
	uint64_t entries[4096];
} *p;

static bool is_anonymous(uint64_t entry)
{
	bool present = entry >> 63 & 1, swapped = entry >> 62 & 1, of_file = entry >> 61 & 1;
	return (present || swapped) && !of_file;
}

bool surus_pages_prepare(void)
{
	p = surus_exempt_map(sizeof(*p));
	return p != NULL;
}

const char *surus_pages_begin(const struct surus_copy *copy, int pagemap)
{
	p->copy = copy;
	p->restore = surus_restore_fastest();
	if (p->known) {
		surus_exempt_unmap(p->known);
	}
	p->known = surus_exempt_map(copy->size / PAGE * sizeof(*p->known));
	if (!p->known) {
		return "no memory for its bookkeeping";
	}
	if (pread(pagemap, p->entries, 8, (off_t)((uintptr_t)p / PAGE * 8)) != 8 ||
	        !is_anonymous(p->entries[0])) {
		return "/proc/self/pagemap does not tell what is anonymous";
	}
	return NULL;
}

/* What page `number` of the memory file has to be. */
static const unsigned char *original(size_t number)
{
	size_t own = p->known[number].own;
	return own ? p->own + (own - 1) * PAGE : p->copy->bytes + number * PAGE;
}

static bool heat(const struct surus_region *r, uintptr_t page)
{
	size_t number = (r->offset + (page - r->start)) / PAGE;
	struct page *known = &p->known[number];

	if (known->hot || known->loose) {
		return true;
	}
	if (p->hot_count == MAX_HOT) {
		return false;
	}
	/* Some pages are written every few thousand events: where OPcache looks for changed files, or a
	 * session is thrown away. */
	if (p->events - known->cooled_at > SOON) {
		known->cooled = 0;
	}
	known->hot = true;
	p->hot[p->hot_count++] = (struct hot){
		.page = (unsigned char *)page,
		.original = original(number),
		.number = (uint32_t)number,
		.patience = PATIENCE << 2 * known->cooled,
	};
	return true;
}

/* Adds every page that has been written to the hot set. */
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
	/* What there is of one thread is told at half the price. */
	int who = __libc_single_threaded ? RUSAGE_THREAD : RUSAGE_SELF;
	if (getrusage(who, &usage) != 0) {
		return -1;
	}
	surus_limit_note(who, &usage);
	/* A fault that had to be tried again, because another process held the page, counts as a major
	 * one. */
	return usage.ru_minflt + usage.ru_majflt;
}

/* --- the mark --- */

static const struct surus_region *region_of(uintptr_t page)
{
	static size_t last; /* mostly it is the same again */

	for (size_t i = 0; i < p->copy->region_count; i++) {
		size_t at = (last + i) % p->copy->region_count;
		if (page >= p->copy->regions[at].start && page < p->copy->regions[at].end) {
			last = at;
			return &p->copy->regions[at];
		}
	}
	return NULL;
}

static void loosen(uintptr_t page)
{
	const struct surus_region *r = region_of(page);

	if (r) {
		p->known[(r->offset + (page - r->start)) / PAGE].loose = true;
	}
}

/* What this worker and the template have written since the snapshot is this worker's own beginning:
 * it goes into a file that only this worker has, mapped in its place, so that these pages too can
 * be told from those that will be written. */
static bool keep_own(void)
{
	size_t size = p->hot_count * PAGE;
	int file = (int)syscall(SYS_memfd_create, "surus-own", 1 /* MFD_CLOEXEC */);
	bool complete = file >= 0 && ftruncate(file, (off_t)size) == 0;

	for (size_t i = 0; complete && i < p->hot_count; i++) {
		complete = pwrite(file, p->hot[i].page, PAGE, (off_t)(i * PAGE)) == PAGE;
	}
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

bool surus_pages_mark(int pagemap)
{
	p->pagemap = pagemap;
	if (!scan() || p->hot_count > HOT_BUDGET || !keep_own()) {
		return false;
	}
	surus_heap_each_free(loosen);
	p->faults = -1;
	return true;
}

/* --- putting back --- */

/* Gives hot pages back to the kernel: all, or those that have been idle for long. Their mapping
 * then shows the file again. */
static bool cool(bool all)
{
	size_t kept = 0;

	for (size_t i = 0; i < p->hot_count;) {
		size_t run = 0;
		while (i + run < p->hot_count && p->hot[i + run].page == p->hot[i].page + run * PAGE &&
		       (all || p->hot[i + run].idle >= p->hot[i + run].patience / 2)) {
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
			/* Where all are, it is not for having been idle. */
			known->cooled = all ? 0 : known->cooled + (known->cooled < MAX_COOLED);
			known->cooled_at = p->events;
		}
		i += run;
	}
	p->hot_count = kept;
	p->impatient = false;
	return true;
}

const char *surus_pages_check(void)
{
	if (p->faults < 0 || faults() != p->faults) {
		if (!scan()) {
			return "memory: the written pages cannot be found";
		}
		p->faults = -1;
	}
	if ((p->hot_count > HOT_BUDGET || p->impatient) && !cool(p->hot_count > HOT_BUDGET)) {
		return "memory: written pages cannot be given back";
	}
	return NULL;
}

void surus_pages_put_back(void)
{
	for (size_t i = 0; i < p->hot_count; i++) {
		struct hot *hot = &p->hot[i], *next = i + 1 < p->hot_count ? hot + 1 : hot;
		if (p->restore(hot->page, hot->original, PAGE, next->page, next->original)) {
			hot->idle = 0;
		} else if (++hot->idle >= hot->patience) {
			p->impatient = true;
		}
	}
	p->events++;
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
			if (!p->known[number].loose && memcmp((void *)page, before, PAGE) != 0) {
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
