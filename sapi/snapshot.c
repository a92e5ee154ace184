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

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
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
	MAX_MAPPINGS = 8192,
	MAPS_TEXT = 1 << 20,
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

/* A line of /proc/self/maps. */
struct mapping {
	uintptr_t start, end;
	size_t offset;
	unsigned long inode;
	int prot;
	bool private, stack, special;
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
	struct mapping mappings[MAX_MAPPINGS]; /* all that there were at the mark, those of the snapshot included */
	size_t mapping_count;
	struct mapping now[MAX_MAPPINGS];
	struct hot hot[MAX_HOT];
	size_t hot_count;
	bool impatient; /* a hot page is to be given back */
	const unsigned char *own; /* this worker's own file, mapped to be read */
	struct page *known; /* one for each page of the memory file */
	bool (*restore)(void *to, const void *from, size_t size, const void *next_to, const void *next_from);
	int maps_file, pagemap, statm;
	long faults;
	size_t pages; /* the size of the address space at the mark */
	uintptr_t brk;
	ucontext_t mark;
	uintptr_t stack_low, stack_high;
	unsigned char stack[STACK_COPY];
	char maps[MAPS_TEXT];
	uint64_t entries[4096];
} *s;

/* Mappings that are never put back. */
static struct {
	uintptr_t start, end;
} exempt[16];
static size_t exempt_count;

void *surus_exempt_map(size_t size)
{
	enum { GUARD = 65536 }; /* the largest page of the architectures that we run on */
	size_t rounded = (size + GUARD - 1) / GUARD * GUARD;
	/* Pages without access on both sides keep the kernel from merging this mapping with another. */
	char *memory = mmap(NULL, rounded + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED || exempt_count == sizeof(exempt) / sizeof(*exempt) ||
	    mprotect(memory + GUARD, rounded, PROT_READ | PROT_WRITE) != 0) {
		return NULL;
	}
	exempt[exempt_count].start = (uintptr_t)memory;
	exempt[exempt_count].end = (uintptr_t)memory + rounded + 2 * GUARD;
	exempt_count++;
	return memory + GUARD;
}

static void exempt_unmap(void *memory)
{
	for (size_t i = 0; i < exempt_count; i++) {
		if ((uintptr_t)memory > exempt[i].start && (uintptr_t)memory < exempt[i].end) {
			munmap((void *)exempt[i].start, exempt[i].end - exempt[i].start);
			exempt[i] = exempt[--exempt_count];
			return;
		}
	}
}

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

/* --- what is mapped --- */

static uintptr_t hex(const char **at)
{
	uintptr_t value = 0;
	for (;; (*at)++) {
		char c = **at;
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
		if (digit < 0) {
			return value;
		}
		value = value << 4 | (uintptr_t)digit;
	}
}

/* Reads /proc/self/maps into `mappings`; returns how many, 0 on failure. Without malloc and stdio, whose memory is at stake. */
static size_t read_mappings(struct mapping *mappings)
{
	size_t len = 0, count = 0;
	ssize_t got;

	lseek(s->maps_file, 0, SEEK_SET);
	while (len < MAPS_TEXT - 1 && (got = read(s->maps_file, s->maps + len, MAPS_TEXT - 1 - len)) > 0) {
		len += (size_t)got;
	}
	s->maps[len] = '\0';
	for (const char *at = s->maps; *at;) {
		if (count == MAX_MAPPINGS || len == MAPS_TEXT - 1) {
			return 0;
		}
		struct mapping *m = &mappings[count++];
		const char *line_end = strchr(at, '\n');
		m->start = hex(&at);
		at++;
		m->end = hex(&at);
		at++;
		m->prot = (at[0] == 'r' ? PROT_READ : 0) | (at[1] == 'w' ? PROT_WRITE : 0) | (at[2] == 'x' ? PROT_EXEC : 0);
		m->private = at[3] == 'p';
		at += 5;
		m->offset = hex(&at);
		at = strchr(at + 1, ' ') + 1; /* behind the device */
		m->inode = strtoul(at, (char **)&at, 10);
		while (*at == ' ') {
			at++;
		}
		m->stack = strncmp(at, "[stack]", 7) == 0;
		m->special = strncmp(at, "[v", 2) == 0; /* vvar, vdso, vsyscall: the kernel's */
		at = line_end ? line_end + 1 : at + strlen(at);
	}
	return count;
}

static size_t exempt_until(uintptr_t start, uintptr_t end, uintptr_t *next)
{
	*next = end;
	for (size_t i = 0; i < exempt_count; i++) {
		if (start >= exempt[i].start && start < exempt[i].end) {
			return exempt[i].end < end ? exempt[i].end : end;
		}
		if (exempt[i].start > start && exempt[i].start < *next) {
			*next = exempt[i].start;
		}
	}
	return 0;
}

/* Splits what is mapped into regions to be put back. */
static bool find_regions(size_t count)
{
	size_t offset = 0;

	s->region_count = 0;
	for (size_t i = 0; i < count; i++) {
		struct mapping *m = &s->now[i];
		if (!m->private || !(m->prot & PROT_WRITE) || m->stack || m->special) {
			continue;
		}
		for (uintptr_t at = m->start; at < m->end;) {
			uintptr_t next;
			uintptr_t skip = exempt_until(at, m->end, &next);
			if (skip) {
				at = skip;
				continue;
			}
			if (s->region_count == MAX_REGIONS) {
				return false;
			}
			struct region *r = &s->regions[s->region_count++];
			r->start = at;
			r->end = next;
			r->offset = offset;
			r->prot = m->prot;
			offset += next - at;
			at = next;
		}
	}
	s->size = offset;
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

/* Is the stack in use the process's own, and is what is in use of it small enough to be copied? */
static bool is_on_stack(size_t count)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	for (size_t i = 0; i < count; i++) {
		if (s->now[i].stack) {
			return here >= s->now[i].start && here < s->now[i].end && s->now[i].end - here < STACK_COPY / 2;
		}
	}
	return false;
}

/* Makes room for the bookkeeping of a snapshot, and forgets the one before: those who live by it have it themselves. */
static bool begin_anew(void)
{
	if (!s) {
		s = surus_exempt_map(sizeof(*s));
		return s != NULL;
	}
	munmap((void *)s->bytes, s->size);
	close(s->file);
	exempt_unmap(s->known);
	return true;
}

const char *surus_snapshot_take(int maps, int pagemap)
{
	size_t count;

	if (!begin_anew()) {
		return "no memory for its bookkeeping";
	}
	s->maps_file = maps;
	count = read_mappings(s->now);
	if (!is_on_stack(count)) {
		return "surus_serve() was called inside of a Fiber, or too deep in the stack";
	}
	if (count == 0 || !find_regions(count)) {
		return "/proc/self/maps cannot be read";
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

size_t surus_snapshot_size(void)
{
	return s ? s->size : 0;
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

/* Pages of the address space, without malloc or stdio. */
static size_t address_space(void)
{
	char text[64];
	size_t pages = 0;
	ssize_t len = pread(s->statm, text, sizeof(text), 0);

	for (ssize_t i = 0; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
		pages = pages * 10 + (size_t)(text[i] - '0');
	}
	return pages;
}

/* --- the mark --- */

static uintptr_t stack_end(void)
{
	for (size_t i = 0; i < s->mapping_count; i++) {
		if (s->mappings[i].stack) {
			return s->mappings[i].end;
		}
	}
	return 0;
}

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

	s->maps_file = maps;
	s->pagemap = pagemap;
	s->statm = statm;
	if (!scan() || s->hot_count > HOT_BUDGET || !keep_own()) {
		return "too much has been written since";
	}
	surus_heap_each_free(loosen);
	s->mapping_count = read_mappings(s->mappings);
	s->stack_low = ((uintptr_t)__builtin_frame_address(0) - 4096) & ~(uintptr_t)15;
	s->stack_high = stack_end();
	if (s->mapping_count == 0 || s->stack_high <= s->stack_low || s->stack_high - s->stack_low > STACK_COPY) {
		return "its stack is too deep";
	}
	s->brk = (uintptr_t)sbrk(0);
	s->pages = address_space();
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

/* Was something mapped at `at`, at the mark? Then `end` is where that ends, or 0 if it was not as `m` is; else `next` is where the next
 * begins, if that is before what it was. */
static bool was_there(const struct mapping *m, uintptr_t at, uintptr_t *next, uintptr_t *end)
{
	for (size_t i = 0; i < s->mapping_count; i++) {
		const struct mapping *before = &s->mappings[i];

		if (at >= before->start && at < before->end) {
			bool same = m->prot == before->prot && m->private == before->private && m->inode == before->inode &&
			            (m->inode == 0 || m->offset + (at - m->start) == before->offset + (at - before->start));
			*end = same ? before->end : 0;
			return true;
		}
		if (before->start > at && before->start < *next) {
			*next = before->start;
		}
	}
	return false;
}

/* The stack may have grown below what is put back, and stays so. */
static void follow_stack(size_t count)
{
	for (size_t i = 0; i < count; i++) {
		for (size_t n = 0; s->now[i].stack && n < s->mapping_count; n++) {
			struct mapping *before = &s->mappings[n];
			if (before->stack && s->now[i].start < before->start) {
				s->pages += (before->start - s->now[i].start) / PAGE;
				before->start = s->now[i].start;
			}
		}
	}
}

/* Removes what was not mapped at the mark. Neighbours are one mapping to the kernel, so that one may be of the mark in part, or of
 * PHP's memory. False: one that was there has gone or changed. */
static bool unmap_new(void)
{
	size_t count = read_mappings(s->now), found = 0, wanted = 0;

	follow_stack(count);
	for (size_t i = 0; i < s->mapping_count; i++) {
		wanted += s->mappings[i].end - s->mappings[i].start;
	}
	for (size_t i = 0; i < count; i++) {
		const struct mapping *m = &s->now[i];

		for (uintptr_t at = m->start; at < m->end;) {
			uintptr_t next = m->end, end;

			if (was_there(m, at, &next, &end)) {
				if (!end) {
					return false;
				}
				end = end < m->end ? end : m->end;
				found += end - at;
				at = end;
			} else if ((end = surus_chunks_until(at, &next))) {
				at = end;
			} else if (munmap((void *)at, next - at) == 0) {
				at = next;
			} else {
				return false;
			}
		}
	}
	return count > 0 && found == wanted;
}

const char *surus_snapshot_check(void)
{
	uintptr_t brk_now = (uintptr_t)sbrk(0);

	if (brk_now != s->brk && (uintptr_t)syscall(SYS_brk, s->brk) != s->brk) {
		return "memory: the heap cannot be made smaller";
	}
	/* Also one whose stack was there at the mark, because the boot has had a thread too. */
	if (surus_has_threads()) {
		return "thread: a thread was left running";
	}
	if (address_space() != s->pages + surus_chunks_pages()) {
		if (!unmap_new() || address_space() != s->pages + surus_chunks_pages()) {
			return "mappings: memory mappings were changed";
		}
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

size_t surus_snapshot_hot(void)
{
	return s->hot_count;
}
