/* What this process has mapped: what it is now, and how it becomes again what it was at the mark.
 * Without malloc and stdio, whose memory is at stake. */
#include "rewind/memory/mappings.h"

#include <gnu/libc-version.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/munmap_hook.h"
#include "base/persistent_map.h"
#include "base/procfs.h"
#include "base/scoreboard_layout.h"
#include "rewind/memory/zend_chunks.h"

enum {
	PAGE = 4096,
	MAX_MAPPINGS = 8192,
	MAPS_TEXT = 1 << 20,
	MAX_WIPED = 64,
};

/* A line of /proc/self/maps. */
struct mapping {
	uintptr_t start, end;
	size_t offset;
	unsigned long inode;
	int prot;
	bool private, stack, special;
};

static struct address_space {
	int maps, statm; /* the files of that name in /proc/self */
	struct mapping now[MAX_MAPPINGS];
	size_t count;
	struct mapping marked[MAX_MAPPINGS]; /* at the mark */
	size_t marked_count;
	struct {
		uintptr_t start, end;
	} wiped[MAX_WIPED];
	size_t wiped_count;
	size_t pages; /* its size at the mark */
	struct libraries {
		unsigned long long loaded, unloaded;
	} libraries; /* at the mark */
	bool lost;   /* something has gone that was there at the mark */
	uintptr_t brk;
	char text[MAPS_TEXT];
} *a;

static void note_lost(uintptr_t start, size_t size)
{
	for (size_t low = 0, high = a->marked_count; low < high;) {
		size_t middle = (low + high) / 2;
		if (a->marked[middle].end <= start) {
			low = middle + 1;
		} else if (a->marked[middle].start >= start + size) {
			high = middle;
		} else {
			a->lost = true;
			return;
		}
	}
}

bool surus_mappings_prepare(void)
{
	a = surus_exempt_map(sizeof(*a));
	if (!a) {
		return false;
	}
	surus_munmap_watch(note_lost);
	return true;
}

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

/* Reads /proc/self/maps into `mappings`; returns how many, 0 on failure. */
static size_t read_into(struct mapping *mappings)
{
	size_t len = 0, count = 0;
	ssize_t got;

	lseek(a->maps, 0, SEEK_SET);
	while (len < MAPS_TEXT - 1 && (got = read(a->maps, a->text + len, MAPS_TEXT - 1 - len)) > 0) {
		len += (size_t)got;
	}
	a->text[len] = '\0';
	for (const char *at = a->text; *at;) {
		if (count == MAX_MAPPINGS || len == MAPS_TEXT - 1) {
			return 0;
		}
		struct mapping *m = &mappings[count++];
		const char *line_end = strchr(at, '\n');
		m->start = hex(&at);
		at++;
		m->end = hex(&at);
		at++;
		m->prot = (at[0] == 'r' ? PROT_READ : 0) | (at[1] == 'w' ? PROT_WRITE : 0) |
		        (at[2] == 'x' ? PROT_EXEC : 0);
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

bool surus_mappings_read(int maps)
{
	a->maps = maps;
	a->count = read_into(a->now);
	return a->count > 0;
}

/* Lines of a file, of which `text` has a part. */
struct lines {
	int file;
	size_t have, at; /* of a->text */
};

/* The next line; its length, 0 at the end. What is longer than `line` is cut. */
static size_t next_line(struct lines *lines, char *line, size_t size)
{
	for (size_t len = 0;; lines->at++) {
		if (lines->at == lines->have) {
			ssize_t got = read(lines->file, a->text, MAPS_TEXT);
			lines->have = got > 0 ? (size_t)got : 0;
			lines->at = 0;
		}
		if (lines->have == 0 || a->text[lines->at] == '\n') {
			lines->at += lines->have > 0;
			line[len] = '\0';
			return len;
		}
		if (len < size - 1) {
			line[len++] = a->text[lines->at];
		}
	}
}

/* glibc does so since 2.41. Before, nobody has had such memory, and to read where it would be takes
 * milliseconds. */
static bool libc_draws_ahead(void)
{
	char *rest;
	long major = strtol(gnu_get_libc_version(), &rest, 10);

	return major > 2 || strtol(rest + (*rest == '.'), NULL, 10) >= 41;
}

bool surus_mappings_note_wiped(int smaps)
{
	enum { LINE = 512 };
	struct lines lines = {.file = smaps};
	char line[LINE];
	uintptr_t start = 0, end = 0, next;
	bool is_written = false, seen = false;

	a->wiped_count = 0;
	if (!libc_draws_ahead()) {
		return true;
	}
	while (next_line(&lines, line, sizeof(line)) > 0) {
		const char *at = line;
		uintptr_t number = hex(&at);
		if (at > line && *at == '-') {
			at++;
			start = number;
			end = hex(&at);
			is_written = strncmp(at, " rw", 3) == 0;
		} else if (strncmp(line, "VmFlags:", 8) == 0) {
			seen = true;
			if (!is_written || !strstr(line, " wf") || surus_exempt_until(start, end, &next)) {
				continue;
			}
			if (a->wiped_count == MAX_WIPED) {
				return false;
			}
			a->wiped[a->wiped_count].start = start;
			a->wiped[a->wiped_count++].end = end;
		}
	}
	return seen;
}

void surus_mappings_wipe(void)
{
	for (size_t i = 0; i < a->wiped_count; i++) {
		memset((void *)a->wiped[i].start, 0, a->wiped[i].end - a->wiped[i].start);
	}
}

static bool is_wiped(uintptr_t start)
{
	for (size_t i = 0; i < a->wiped_count; i++) {
		if (start == a->wiped[i].start) {
			return true;
		}
	}
	return false;
}

bool surus_mappings_is_on_stack(size_t most)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	for (size_t i = 0; i < a->count; i++) {
		if (a->now[i].stack) {
			return here >= a->now[i].start && here < a->now[i].end && a->now[i].end - here < most;
		}
	}
	return false;
}

bool surus_mappings_each_writable(bool (*each)(uintptr_t start, uintptr_t end, int prot,
        bool anonymous))
{
	for (size_t i = 0; i < a->count; i++) {
		struct mapping *m = &a->now[i];
		/* What is wiped is a line of its own, since its flags differ from those of its
		 * neighbours. */
		if (!m->private || !(m->prot & PROT_WRITE) || m->stack || m->special ||
		        is_wiped(m->start)) {
			continue;
		}
		for (uintptr_t at = m->start; at < m->end;) {
			uintptr_t next;
			uintptr_t skip = surus_exempt_until(at, m->end, &next);
			if (skip) {
				at = skip;
				continue;
			}
			if (!each(at, next, m->prot, m->inode == 0)) {
				return false;
			}
			at = next;
		}
	}
	return true;
}

/* --- the mark --- */

static int count_libraries(struct dl_phdr_info *info, size_t size, void *to)
{
	struct libraries *libraries = to;

	(void)size;
	libraries->loaded = info->dlpi_adds;
	libraries->unloaded = info->dlpi_subs;
	return 1; /* each of them says the same */
}

/* Were libraries loaded or unloaded since the mark? One may lie now where another was that is as
 * large. */
static bool has_other_libraries(void)
{
	struct libraries now;

	dl_iterate_phdr(count_libraries, &now);
	return now.loaded != a->libraries.loaded || now.unloaded != a->libraries.unloaded;
}

/* Pages of the address space. */
static size_t size(void)
{
	char text[64];
	size_t pages = 0;
	ssize_t len = pread(a->statm, text, sizeof(text), 0);

	for (ssize_t i = 0; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
		pages = pages * 10 + (size_t)(text[i] - '0');
	}
	return pages;
}

bool surus_mappings_mark(int maps, int statm)
{
	a->maps = maps;
	a->statm = statm;
	a->marked_count = read_into(a->marked);
	a->brk = (uintptr_t)sbrk(0);
	a->pages = size();
	a->lost = false;
	dl_iterate_phdr(count_libraries, &a->libraries);
	return a->marked_count > 0;
}

uintptr_t surus_mappings_stack_end(void)
{
	for (size_t i = 0; i < a->marked_count; i++) {
		if (a->marked[i].stack) {
			return a->marked[i].end;
		}
	}
	return 0;
}

/* Was something mapped at `at`, at the mark? Then `end` is where that ends, or 0 if it was not as
 * `m` is; else `next` is where the next begins, if that is before what it was. */
static bool was_there(const struct mapping *m, uintptr_t at, uintptr_t *next, uintptr_t *end)
{
	for (size_t i = 0; i < a->marked_count; i++) {
		const struct mapping *before = &a->marked[i];

		if (at >= before->start && at < before->end) {
			bool same = m->prot == before->prot && m->private == before->private &&
			        m->inode == before->inode &&
			            (m->inode == 0 ||
			            m->offset + (at - m->start) == before->offset + (at - before->start));
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
static void follow_stack(void)
{
	for (size_t i = 0; i < a->count; i++) {
		for (size_t n = 0; a->now[i].stack && n < a->marked_count; n++) {
			struct mapping *before = &a->marked[n];
			if (before->stack && a->now[i].start < before->start) {
				a->pages += (before->start - a->now[i].start) / PAGE;
				before->start = a->now[i].start;
			}
		}
	}
}

/* Removes what was not mapped at the mark. Neighbours are one mapping to the kernel, so that one
 * may be of the mark in part, or of PHP's memory. False: one that was there has gone or changed. */
static bool unmap_new(void)
{
	size_t found = 0, wanted = 0;

	a->count = read_into(a->now);
	follow_stack();
	for (size_t i = 0; i < a->marked_count; i++) {
		wanted += a->marked[i].end - a->marked[i].start;
	}
	for (size_t i = 0; i < a->count; i++) {
		const struct mapping *m = &a->now[i];

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
	return a->count > 0 && found == wanted;
}

/* Is as much mapped as at the mark, but for the chunks that are kept? */
static bool is_as_large(void)
{
	return size() == a->pages + surus_chunks_pages();
}

const char *surus_mappings_put_back(void)
{
	uintptr_t brk_now = (uintptr_t)sbrk(0);

	if (brk_now != a->brk && (uintptr_t)syscall(SYS_brk, a->brk) != a->brk) {
		return "memory: the heap cannot be made smaller";
	}
	/* Also one whose stack was there at the mark, because the boot has had a thread too. */
	if (surus_has_threads()) {
		return "thread: a thread was left running";
	}
	if ((!is_as_large() || a->lost || has_other_libraries()) && (!unmap_new() || !is_as_large())) {
		return "mappings: memory mappings were changed";
	}
	a->lost = false;
	return NULL;
}
