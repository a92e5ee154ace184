/* The memory of this process: a copy of it as it was, which of its pages have been written since, and how they are put back.
 *
 * The copy lies in a memory file. Every private writable mapping is replaced by a private mapping of that file, so that a page
 * that nobody has written is the file's own, shared by all workers, and a page that has been written is anonymous
 * (/proc/self/pagemap tells them apart). An anonymous page stays so: it is compared with its old bytes after each event, and gets
 * back those that differ. These pages are the hot set. One that has not differed for long is the file's again. Free pages of PHP's
 * heap are nobody's and stay as they are.
 *
 * What a worker finds written when it begins, is its own beginning, and lies in a file of its own.
 *
 * What runs here works on memory that is not put back: the stack below the mark, and mappings that are exempt. */
#include "snapshot.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "surus.h"

enum {
	PAGE = 4096,
	MAX_REGIONS = 4096,
	HOT_BUDGET = 4096, /* pages; a request that writes more than these 16 MiB gives them back */
	PATIENCE = 256,    /* events; four times as many each time that the page has been needed again all the same */
	MAX_COOLED = 5,
	BLOCK = 256, /* bytes that are put back together */
	LINE = 64,
	MAX_HOT = 1 << 20,
	STACK_COPY = 1 << 20,
	BELOW_THE_MARK = 16 * 1024, /* how far from the marked frames the restoring code runs */
};

struct region {
	uintptr_t start, end;
	size_t offset; /* in the memory file */
	int prot;
};

struct hot {
	unsigned char *page;
	const unsigned char *original;
	uint32_t number;       /* in the memory file */
	uint32_t idle, patience; /* events in a row that have not changed it, and after how many it is given back */
};

/* What is known of a page of the memory file. */
struct page {
	uint16_t own; /* its number in this worker's own file, from 1; 0 when it is not there */
	bool hot;
	bool loose; /* free memory of PHP's heap, in which nobody looks for anything */
	unsigned char cooled; /* how often it has been given back */
};

static struct snapshot {
	int file;
	size_t size;
	const unsigned char *bytes; /* the file, mapped to be read */
	struct region regions[MAX_REGIONS];
	size_t region_count;
	struct hot hot[MAX_HOT];
	size_t hot_count;
	bool impatient; /* a hot page is to be given back */
	const unsigned char *own; /* this worker's own file, mapped to be read */
	struct page *known; /* one for each page of the memory file */
	bool (*restore)(void *to, const void *from, size_t size, const void *next_to, const void *next_from);
	int pagemap;
	long faults;
	ucontext_t mark;
	uintptr_t stack_low, stack_high;
	unsigned char stack[STACK_COPY];
	uint64_t entries[4096];
} *s;

/* --- comparing and copying --- */

/* Makes `to` what `from` is, writing only where they differ: then mostly nothing has to be written, and reading takes the caches
 * less. Meanwhile what comes next is fetched: processors do so by themselves only within a page. Did anything differ? */
static inline __attribute__((always_inline)) bool restore(void *to, const void *from, size_t size, const void *next_to,
                                                          const void *next_from)
{
	bool differed = false;
	size_t at = 0;

	for (; size - at >= BLOCK; at += BLOCK) {
		uint64_t *a = (uint64_t *)((char *)to + at), differs = 0;
		const uint64_t *b = (const uint64_t *)((const char *)from + at);

		for (size_t line = 0; line < BLOCK; line += LINE) {
			__builtin_prefetch((const char *)next_to + at + line);
			__builtin_prefetch((const char *)next_from + at + line);
		}
		for (size_t i = 0; i < BLOCK / sizeof(*a); i++) {
			differs |= a[i] ^ b[i];
		}
		if (differs) {
			memcpy(a, b, BLOCK);
			differed = true;
		}
	}
	memcpy((char *)to + at, (const char *)from + at, size - at);
	return differed;
}

static bool restore_plainly(void *to, const void *from, size_t size, const void *next_to, const void *next_from)
{
	return restore(to, from, size, next_to, next_from);
}

#ifdef __x86_64__
static __attribute__((target("avx2"))) bool restore_by_avx2(void *to, const void *from, size_t size, const void *next_to,
                                                            const void *next_from)
{
	return restore(to, from, size, next_to, next_from);
}
#endif

static void choose_restore(void)
{
	s->restore = restore_plainly;
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2")) {
		s->restore = restore_by_avx2;
	}
#endif
}

static bool add_region(uintptr_t start, uintptr_t end, int prot)
{
	if (s->region_count == MAX_REGIONS) {
		return false;
	}
	s->regions[s->region_count++] = (struct region){.start = start, .end = end, .offset = s->size, .prot = prot};
	s->size += end - start;
	return true;
}

static bool is_anonymous(uint64_t entry)
{
	bool present = entry >> 63 & 1, swapped = entry >> 62 & 1, of_file = entry >> 61 & 1;
	return (present || swapped) && !of_file;
}

static bool is_zero(const void *page)
{
	const uint64_t *words = page;
	for (size_t i = 0; i < PAGE / sizeof(*words); i++) {
		if (words[i]) {
			return false;
		}
	}
	return true;
}

/* Copies a region into the file; pages of zeros stay holes. */
static bool save(const struct region *r)
{
	for (uintptr_t page = r->start; page < r->end; page += PAGE) {
		if (!is_zero((void *)page) &&
		    pwrite(s->file, (void *)page, PAGE, (off_t)(r->offset + (page - r->start))) != PAGE) {
			return false;
		}
	}
	return true;
}

/* Makes room for the bookkeeping of a snapshot, and forgets the one before: those who live by it have it themselves. */
static bool begin_anew(void)
{
	if (!s) {
		s = surus_exempt_map(sizeof(*s));
		return s && surus_mappings_prepare();
	}
	munmap((void *)s->bytes, s->size);
	close(s->file);
	surus_exempt_unmap(s->known);
	s->region_count = s->size = 0;
	return true;
}

const char *surus_snapshot_take(int maps, int pagemap)
{
	if (!begin_anew()) {
		return "no memory for its bookkeeping";
	}
	if (!surus_mappings_read(maps)) {
		return "/proc/self/maps cannot be read";
	}
	if (!surus_mappings_is_on_stack(STACK_COPY / 2)) {
		return "surus_serve() was called inside of a Fiber, or too deep in the stack";
	}
	if (!surus_mappings_each_writable(add_region)) {
		return "it has too many mappings";
	}
	if (s->size > (size_t)64 << 30) {
		return "it has mapped more than 64 GiB"; /* sanitizers do */
	}
	choose_restore();
	s->known = surus_exempt_map(s->size / PAGE * sizeof(*s->known));
	s->file = (int)syscall(SYS_memfd_create, "surus-snapshot", 1 /* MFD_CLOEXEC */);
	if (!s->known || s->file < 0 || ftruncate(s->file, (off_t)s->size) != 0) {
		return "no memory file (memfd_create)";
	}
	if (pread(pagemap, s->entries, 8, (off_t)((uintptr_t)s / PAGE * 8)) != 8 || !is_anonymous(s->entries[0])) {
		return "/proc/self/pagemap does not tell what is anonymous";
	}
	/* All is copied before anything is replaced; nothing in between writes to a region. */
	for (size_t i = 0; i < s->region_count; i++) {
		if (!save(&s->regions[i])) {
			return "no memory for the snapshot";
		}
	}
	for (size_t i = 0; i < s->region_count; i++) {
		struct region *r = &s->regions[i];
		if (mmap((void *)r->start, r->end - r->start, r->prot, MAP_PRIVATE | MAP_FIXED, s->file, (off_t)r->offset) ==
		    MAP_FAILED) {
			/* Half of the memory is the file's; that is as good as the memory before. */
			return "the snapshot cannot be mapped";
		}
	}
	s->bytes = mmap(NULL, s->size, PROT_READ, MAP_SHARED, s->file, 0);
	return s->bytes == MAP_FAILED ? "the snapshot cannot be mapped" : NULL;
}

/* --- which pages have been written --- */

/* What page `number` of the memory file has to be. */
static const unsigned char *original(size_t number)
{
	size_t own = s->known[number].own;
	return own ? s->own + (own - 1) * PAGE : s->bytes + number * PAGE;
}

static bool heat(const struct region *r, uintptr_t page)
{
	size_t number = (r->offset + (page - r->start)) / PAGE;
	struct page *known = &s->known[number];

	if (known->hot || known->loose) {
		return true;
	}
	if (s->hot_count == MAX_HOT) {
		return false;
	}
	known->hot = true;
	s->hot[s->hot_count++] = (struct hot){
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
	for (size_t i = 0; i < s->region_count; i++) {
		const struct region *r = &s->regions[i];
		for (uintptr_t at = r->start; at < r->end;) {
			size_t pages = (r->end - at) / PAGE;
			size_t want = pages < sizeof(s->entries) / sizeof(*s->entries) ? pages : sizeof(s->entries) / sizeof(*s->entries);
			ssize_t got = pread(s->pagemap, s->entries, want * 8, (off_t)(at / PAGE * 8));
			if (got <= 0) {
				return false;
			}
			for (size_t n = 0; n < (size_t)got / 8; n++) {
				if (is_anonymous(s->entries[n]) && !heat(r, at + n * PAGE)) {
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
	getrusage(RUSAGE_SELF, &usage);
	/* A fault that had to be tried again, because another process held the page, counts as a major one. */
	return usage.ru_minflt + usage.ru_majflt;
}

/* --- the mark --- */

static const struct region *region_of(uintptr_t page)
{
	static size_t last; /* mostly it is the same again */

	for (size_t i = 0; i < s->region_count; i++) {
		size_t at = (last + i) % s->region_count;
		if (page >= s->regions[at].start && page < s->regions[at].end) {
			last = at;
			return &s->regions[at];
		}
	}
	return NULL;
}

static void loosen(uintptr_t page)
{
	const struct region *r = region_of(page);

	if (r) {
		s->known[(r->offset + (page - r->start)) / PAGE].loose = true;
	}
}

/* What this worker and the template have written since the snapshot is this worker's own beginning: it goes into a file that only
 * this worker has, mapped in its place, so that these pages too can be told from those that will be written. */
static bool keep_own(void)
{
	size_t size = s->hot_count * PAGE;
	int file = (int)syscall(SYS_memfd_create, "surus-own", 1 /* MFD_CLOEXEC */);
	bool complete = file >= 0 && ftruncate(file, (off_t)size) == 0;

	for (size_t i = 0; complete && i < s->hot_count; i++) {
		complete = pwrite(file, s->hot[i].page, PAGE, (off_t)(i * PAGE)) == PAGE;
	}
	if (complete && size > 0) {
		s->own = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
		complete = s->own != MAP_FAILED;
	}
	for (size_t i = 0; complete && i < s->hot_count;) {
		size_t run = 1;
		int prot = region_of((uintptr_t)s->hot[i].page)->prot;
		while (i + run < s->hot_count && s->hot[i + run].page == s->hot[i].page + run * PAGE &&
		       region_of((uintptr_t)s->hot[i + run].page)->prot == prot) {
			run++;
		}
		complete = mmap(s->hot[i].page, run * PAGE, prot, MAP_PRIVATE | MAP_FIXED, file, (off_t)(i * PAGE)) != MAP_FAILED;
		for (size_t n = i; n < i + run; n++) {
			s->known[s->hot[n].number] = (struct page){.own = (uint16_t)(n + 1)};
		}
		i += run;
	}
	close(file);
	s->hot_count = 0;
	return complete;
}

const char *surus_snapshot_mark(int maps, int pagemap, int statm)
{
	volatile bool marked = false;

	s->pagemap = pagemap;
	if (!scan() || s->hot_count > HOT_BUDGET || !keep_own()) {
		return "too much has been written since";
	}
	surus_heap_each_free(loosen);
	if (!surus_mappings_mark(maps, statm)) {
		return "/proc/self/maps cannot be read";
	}
	s->stack_low = ((uintptr_t)__builtin_frame_address(0) - 4096) & ~(uintptr_t)15;
	s->stack_high = surus_mappings_stack_end();
	if (s->stack_high <= s->stack_low || s->stack_high - s->stack_low > STACK_COPY) {
		return "its stack is too deep";
	}
	getcontext(&s->mark);
	if (marked) {
		return NULL; /* rewound */
	}
	marked = true;
	memcpy(s->stack, (void *)s->stack_low, s->stack_high - s->stack_low);
	s->faults = -1;
	return NULL;
}

/* --- putting back --- */

/* Gives hot pages back to the kernel: all, or those that have been idle for long. Their mapping then shows the file again. */
static bool cool(bool all)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->hot_count;) {
		size_t run = 0;
		while (i + run < s->hot_count && s->hot[i + run].page == s->hot[i].page + run * PAGE &&
		       (all || s->hot[i + run].idle >= s->hot[i + run].patience / 2)) {
			run++;
		}
		if (run == 0) {
			s->hot[kept++] = s->hot[i++];
			continue;
		}
		if (madvise(s->hot[i].page, run * PAGE, MADV_DONTNEED) != 0) {
			return false;
		}
		for (size_t n = i; n < i + run; n++) {
			struct page *known = &s->known[s->hot[n].number];
			known->hot = false;
			known->cooled += known->cooled < MAX_COOLED;
		}
		i += run;
	}
	s->hot_count = kept;
	s->impatient = false;
	return true;
}

const char *surus_snapshot_check(void)
{
	const char *why = surus_mappings_put_back();

	if (why) {
		return why;
	}
	if (faults() != s->faults) {
		if (!scan()) {
			return "memory: the written pages cannot be found";
		}
		s->faults = -1;
	}
	if ((s->hot_count > HOT_BUDGET || s->impatient) && !cool(s->hot_count > HOT_BUDGET)) {
		return "memory: written pages cannot be given back";
	}
	return NULL;
}

static __attribute__((noinline, noreturn)) void put_back(void)
{
	for (size_t i = 0; i < s->hot_count; i++) {
		struct hot *hot = &s->hot[i], *next = i + 1 < s->hot_count ? hot + 1 : hot;
		if (s->restore(hot->page, hot->original, PAGE, next->page, next->original)) {
			hot->idle = 0;
		} else if (++hot->idle >= hot->patience) {
			s->impatient = true;
		}
	}
	s->restore((void *)s->stack_low, s->stack, s->stack_high - s->stack_low, s->stack, s->stack);
	if (s->faults < 0) {
		s->faults = faults();
	}
	setcontext(&s->mark);
	_exit(SURUS_EXIT_SETUP);
}

void surus_snapshot_put_back(void)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), there = s->stack_low - BELOW_THE_MARK;

	/* The frames that are put back must not be those that do it. */
	if (here > there) {
		volatile char *room = __builtin_alloca(here - there);
		room[0] = 0;
	}
	put_back();
}

const void *surus_snapshot_difference(void)
{
	for (size_t i = 0; i < s->region_count; i++) {
		const struct region *r = &s->regions[i];
		for (uintptr_t page = r->start; page < r->end; page += PAGE) {
			size_t number = (r->offset + (page - r->start)) / PAGE;
			const unsigned char *before = original(number);
			if (!s->known[number].loose && memcmp((void *)page, before, PAGE) != 0) {
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
