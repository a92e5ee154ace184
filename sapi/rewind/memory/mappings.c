/* Restores the address space of the checkpoint: reads /proc/self/maps and unmaps what is new. Uses
 * neither malloc nor stdio, whose memory is being restored. */
#include "rewind/memory/mappings.h"

#include <errno.h>
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
	int maps, statm; /* the files of these names in /proc/self */
	struct mapping now[MAX_MAPPINGS];
	size_t count;
	struct mapping checkpoint[MAX_MAPPINGS]; /* at the checkpoint */
	size_t checkpoint_count;
	struct {
		uintptr_t start, end;
	} wiped[MAX_WIPED];
	size_t wiped_count;
	size_t pages; /* size at the checkpoint */
	struct libraries {
		unsigned long long loaded, unloaded;
	} libraries; /* at the checkpoint */
	bool lost; /* a mapping of the checkpoint was unmapped */
	uintptr_t brk;
	char text[MAPS_TEXT];
} *space;

static void record_lost(uintptr_t start, size_t size)
{
	for (size_t low = 0, high = space->checkpoint_count; low < high;) {
		size_t middle = (low + high) / 2;
		if (space->checkpoint[middle].end <= start) {
			low = middle + 1;
		} else if (space->checkpoint[middle].start >= start + size) {
			high = middle;
		} else {
			space->lost = true;
			return;
		}
	}
}

bool surus_mappings_create(void)
{
	space = surus_persistent_map(sizeof(*space));
	if (!space) {
		return false;
	}
	surus_munmap_watch(record_lost);
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

/* Reads /proc/self/maps into `mappings`. Returns their number; 0 on failure, with errno. */
static size_t read_into(struct mapping *mappings)
{
	size_t len = 0, count = 0;
	ssize_t got;

	lseek(space->maps, 0, SEEK_SET);
	while (len < MAPS_TEXT - 1 &&
	        (got = read(space->maps, space->text + len, MAPS_TEXT - 1 - len)) > 0) {
		len += (size_t)got;
	}
	space->text[len] = '\0';
	for (const char *at = space->text; *at;) {
		if (count == MAX_MAPPINGS || len == MAPS_TEXT - 1) {
			errno = EFBIG;
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
		at = strchr(at + 1, ' ') + 1; /* after the device */
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
	space->maps = maps;
	space->count = read_into(space->now);
	return space->count > 0;
}

/* Reads lines of a file through space->text. */
struct lines {
	int file;
	size_t have, at; /* of space->text */
};

/* Returns the length of the next line, 0 at the end. Cuts it to the size of `line`. */
static size_t next_line(struct lines *lines, char *line, size_t size)
{
	for (size_t len = 0;; lines->at++) {
		if (lines->at == lines->have) {
			ssize_t got = read(lines->file, space->text, MAPS_TEXT);
			lines->have = got > 0 ? (size_t)got : 0;
			lines->at = 0;
		}
		if (lines->have == 0 || space->text[lines->at] == '\n') {
			lines->at += lines->have > 0;
			line[len] = '\0';
			return len;
		}
		if (len < size - 1) {
			line[len++] = space->text[lines->at];
		}
	}
}

/* glibc prefetches random numbers since 2.41. Before, no such memory exists, and looking for it
 * takes milliseconds. */
static bool libc_prefetches_random(void)
{
	char *rest;
	long major = strtol(gnu_get_libc_version(), &rest, 10);

	return major > 2 || strtol(rest + (*rest == '.'), NULL, 10) >= 41;
}

bool surus_mappings_find_wiped(int smaps)
{
	enum { LINE = 512 };
	struct lines lines = {.file = smaps};
	char line[LINE];
	uintptr_t start = 0, end = 0, next;
	bool is_written = false, seen = false;

	errno = ENODATA; /* for a kernel whose file has no flags */

	space->wiped_count = 0;
	if (!libc_prefetches_random()) {
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
			if (!is_written || !strstr(line, " wf") || surus_persistent_until(start, end, &next)) {
				continue;
			}
			if (space->wiped_count == MAX_WIPED) {
				errno = EFBIG;
				return false;
			}
			space->wiped[space->wiped_count].start = start;
			space->wiped[space->wiped_count++].end = end;
		}
	}
	return seen;
}

void surus_mappings_wipe(void)
{
	for (size_t i = 0; i < space->wiped_count; i++) {
		memset((void *)space->wiped[i].start, 0, space->wiped[i].end - space->wiped[i].start);
	}
}

static bool is_wiped(uintptr_t start)
{
	for (size_t i = 0; i < space->wiped_count; i++) {
		if (start == space->wiped[i].start) {
			return true;
		}
	}
	return false;
}

bool surus_mappings_is_on_stack(size_t max)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	for (size_t i = 0; i < space->count; i++) {
		if (space->now[i].stack) {
			return here >= space->now[i].start && here < space->now[i].end &&
			        space->now[i].end - here < max;
		}
	}
	return false;
}

bool surus_mappings_each_writable(bool (*each)(uintptr_t start, uintptr_t end, int prot,
        bool anonymous))
{
	for (size_t i = 0; i < space->count; i++) {
		struct mapping *m = &space->now[i];
		/* A wiped range is a line of its own, because its flags differ from those of its
		 * neighbours. */
		if (!m->private || !(m->prot & PROT_WRITE) || m->stack || m->special ||
		        is_wiped(m->start)) {
			continue;
		}
		for (uintptr_t at = m->start; at < m->end;) {
			uintptr_t next;
			uintptr_t skip = surus_persistent_until(at, m->end, &next);
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

/* --- the checkpoint --- */

static int count_libraries(struct dl_phdr_info *info, size_t size, void *to)
{
	struct libraries *libraries = to;

	(void)size;
	libraries->loaded = info->dlpi_adds;
	libraries->unloaded = info->dlpi_subs;
	return 1; /* all entries have the same numbers */
}

/* Whether libraries were loaded or unloaded since the checkpoint. A new one may lie where another
 * of the same size was. */
static bool has_other_libraries(void)
{
	struct libraries now;

	dl_iterate_phdr(count_libraries, &now);
	return now.loaded != space->libraries.loaded || now.unloaded != space->libraries.unloaded;
}

/* Pages of the address space. */
static size_t size(void)
{
	char text[64];
	size_t pages = 0;
	ssize_t len = pread(space->statm, text, sizeof(text), 0);

	for (ssize_t i = 0; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
		pages = pages * 10 + (size_t)(text[i] - '0');
	}
	return pages;
}

bool surus_mappings_checkpoint(int maps, int statm)
{
	space->maps = maps;
	space->statm = statm;
	space->checkpoint_count = read_into(space->checkpoint);
	space->brk = (uintptr_t)sbrk(0);
	space->pages = size();
	space->lost = false;
	dl_iterate_phdr(count_libraries, &space->libraries);
	return space->checkpoint_count > 0;
}

uintptr_t surus_mappings_stack_end(void)
{
	for (size_t i = 0; i < space->checkpoint_count; i++) {
		if (space->checkpoint[i].stack) {
			return space->checkpoint[i].end;
		}
	}
	return 0;
}

/* Whether `at` was mapped at the checkpoint. If so, `end` is where that mapping ended, or 0 if it
 * differed from `m`. If not, `next` is lowered to the start of the next mapping. */
static bool was_mapped(const struct mapping *m, uintptr_t at, uintptr_t *next, uintptr_t *end)
{
	for (size_t i = 0; i < space->checkpoint_count; i++) {
		const struct mapping *before = &space->checkpoint[i];

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

/* The stack may have grown below the restored part, and stays so. */
static void follow_stack(void)
{
	for (size_t i = 0; i < space->count; i++) {
		for (size_t n = 0; space->now[i].stack && n < space->checkpoint_count; n++) {
			struct mapping *before = &space->checkpoint[n];
			if (before->stack && space->now[i].start < before->start) {
				space->pages += (before->start - space->now[i].start) / PAGE;
				before->start = space->now[i].start;
			}
		}
	}
}

/* Unmaps what was not mapped at the checkpoint. The kernel merges neighbours, so a mapping may
 * belong to the checkpoint, or to PHP's memory, in part. False: a mapping of the checkpoint is
 * missing or has changed. */
static bool unmap_new(void)
{
	size_t found = 0, wanted = 0;

	space->count = read_into(space->now);
	follow_stack();
	for (size_t i = 0; i < space->checkpoint_count; i++) {
		wanted += space->checkpoint[i].end - space->checkpoint[i].start;
	}
	for (size_t i = 0; i < space->count; i++) {
		const struct mapping *m = &space->now[i];

		for (uintptr_t at = m->start; at < m->end;) {
			uintptr_t next = m->end, end;

			if (was_mapped(m, at, &next, &end)) {
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
	return space->count > 0 && found == wanted;
}

/* Whether the address space is as large as at the checkpoint, not counting kept chunks. */
static bool is_as_large(void)
{
	return size() == space->pages + surus_chunks_pages();
}

const char *surus_mappings_restore(void)
{
	uintptr_t brk_now = (uintptr_t)sbrk(0);

	if (brk_now != space->brk && (uintptr_t)syscall(SYS_brk, space->brk) != space->brk) {
		return "memory: cannot shrink the heap (brk)";
	}
	/* Also a thread whose stack was mapped at the checkpoint, because the boot had a thread,
	 * too. */
	if (surus_procfs_has_threads()) {
		return "thread: a thread was left running";
	}
	if ((!is_as_large() || space->lost || has_other_libraries()) &&
	        (!unmap_new() || !is_as_large())) {
		return "mappings: memory mappings were changed";
	}
	space->lost = false;
	return NULL;
}
