/* Takes the snapshot of a process's memory, checkpoints workers, restores them.
 *
 * The code here runs on memory that is not restored: the stack below the checkpoint's frames, and
 * persistent mappings. docs/internals/rewind-memory.md has more. */
#include "rewind/memory/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/persistent_map.h"
#include "base/reason.h"
#include "base/scoreboard_layout.h"
#include "rewind/memory/copy_back.h"
#include "rewind/memory/mappings.h"
#include "rewind/memory/pages.h"

enum {
	PAGE = 4096,
	STACK_COPY = 1 << 20,
	BELOW_CHECKPOINT = 16 * 1024, /* distance of the restoring code from the saved frames */
};

static struct snapshot {
	struct surus_copy copy;
	surus_copy_back *restore;
	jmp_buf checkpoint;
	sigset_t mask; /* signal mask at the checkpoint */
	/* floating-point environment at the checkpoint: a library may change it for good, as
	 * -ffast-math does */
	fenv_t floats;
	uintptr_t stack_low, stack_high;
	unsigned char stack[STACK_COPY];
} *s;

static bool add_region(uintptr_t start, uintptr_t end, int prot, bool anonymous)
{
	struct surus_copy *copy = &s->copy;

	if (copy->region_count == SURUS_REGIONS) {
		return false;
	}
	copy->regions[copy->region_count++] =
	    (struct surus_region){.start = start, .end = end, .offset = copy->size, .prot = prot,
	    .anonymous = anonymous};
	copy->size += end - start;
	return true;
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

static bool write_all(int file, const void *bytes, size_t len, size_t offset)
{
	for (size_t done = 0; done < len;) {
		ssize_t written = pwrite(file, (const char *)bytes + done, len - done,
		        (off_t)(offset + done));
		if (written <= 0) {
			return false;
		}
		done += (size_t)written;
	}
	return true;
}

/* Whether it is a guard page, which must not be touched (MADV_GUARD_INSTALL), such as those of
 * thread stacks since glibc 2.42. Since Linux 6.15 bit 58 of the page map shows it; before, such a
 * page looks swapped out, and only an access tells. */
static bool is_guard(uint64_t entry, const void *page, int file, size_t offset)
{
	const uint64_t present = (uint64_t)1 << 63, swapped = (uint64_t)1 << 62, guard =
	        (uint64_t)1 << 58;

	return entry & guard || ((entry & (present | swapped)) == swapped &&
	        pwrite(file, page, 1, (off_t)offset) < 0 && errno == EFAULT);
}

/* Copies a region into the file; zero pages stay holes. Untouched pages without a file behind them
 * are skipped (Documentation/admin-guide/mm/pagemap.rst, bits 62 and 63), because reading would
 * allocate them. */
static bool save(const struct surus_region *r, int file, int pagemap)
{
	enum { AT_ONCE = 512 };
	const uint64_t there = (uint64_t)3 << 62;
	uint64_t entries[AT_ONCE];

	for (uintptr_t at = r->start; at < r->end;) {
		size_t pages = (r->end - at) / PAGE < AT_ONCE ? (r->end - at) / PAGE : AT_ONCE, begun = 0;
		ssize_t known = r->anonymous ? pread(pagemap, entries, pages * 8, (off_t)(at / PAGE * 8))
		        : 0;

		for (size_t i = 0; i <= pages; i++) {
			void *page = (void *)(at + i * PAGE);
			size_t offset = r->offset + (at - r->start);
			bool is_known = i < (size_t)(known > 0 ? known : 0) / 8;
			if (i < pages && !(is_known &&
			        (!(entries[i] & there) ||
			        is_guard(entries[i], page, file, offset + i * PAGE))) && !is_zero(page)) {
				continue;
			}
			if (i > begun && !write_all(file, (void *)(at + begun * PAGE), (i - begun) * PAGE,
			        offset + begun * PAGE)) {
				return false;
			}
			begun = i + 1;
		}
		at += pages * PAGE;
	}
	return true;
}

/* Allocates the bookkeeping, or forgets the previous snapshot, which existing workers have mapped
 * themselves. */
static bool begin(void)
{
	if (!s) {
		s = surus_persistent_map(sizeof(*s));
		return s && surus_mappings_create() && surus_pages_create();
	}
	munmap((void *)s->copy.bytes, s->copy.size);
	s->copy.region_count = s->copy.size = 0;
	return true;
}

/* Replaces all copied regions by mappings of the copy. NULL, or why that failed. */
static const char *copy_and_map(int file, int pagemap)
{
	if (ftruncate(file, (off_t)s->copy.size) != 0) {
		return surus_reason("cannot enlarge the memory file (ftruncate)");
	}
	/* Copies everything before it replaces anything; nothing in between writes to a region. */
	for (size_t i = 0; i < s->copy.region_count; i++) {
		if (!save(&s->copy.regions[i], file, pagemap)) {
			return surus_reason("cannot copy memory into the snapshot");
		}
	}
	/* Kernels before 5.1 lack F_SEAL_FUTURE_WRITE; then the missing descriptor is the only
	 * protection. */
	fcntl(file, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	for (size_t i = 0; i < s->copy.region_count; i++) {
		struct surus_region *r = &s->copy.regions[i];
		if (mmap((void *)r->start, r->end - r->start, r->prot, MAP_PRIVATE | MAP_FIXED, file,
		        (off_t)r->offset) ==
		    MAP_FAILED) {
			/* Some regions are mapped from the file now; their content is the same. */
			return surus_reason("cannot map the snapshot");
		}
	}
	s->copy.bytes = mmap(NULL, s->copy.size, PROT_READ, MAP_SHARED, file, 0);
	return s->copy.bytes == MAP_FAILED ? surus_reason("cannot map the snapshot") : NULL;
}

const char *surus_snapshot_take(int maps, int smaps, int pagemap)
{
	const char *why;

	if (!begin()) {
		return "cannot allocate the snapshot's state";
	}
	if (!surus_mappings_read(maps)) {
		return surus_reason("cannot read /proc/self/maps");
	}
	if (!surus_mappings_find_wiped(smaps)) {
		return surus_reason("cannot read /proc/self/smaps");
	}
	if (!surus_mappings_is_on_stack(STACK_COPY / 2)) {
		return "surus_serve() was called inside of a Fiber, or too deep in the stack";
	}
	if (!surus_mappings_each_writable(add_region)) {
		return "it has too many mappings";
	}
	if (s->copy.size > (size_t)64 << 30) {
		return "it has mapped more than 64 GiB"; /* as under sanitizers */
	}
	s->restore = surus_copy_back_fastest();
	if ((why = surus_pages_begin(&s->copy, pagemap))) {
		return why;
	}
	/* Closed once everything is mapped, so that no script gets it. */
	int file = (int)syscall(SYS_memfd_create, "surus-snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (file < 0) {
		return surus_reason("cannot create a memory file (memfd_create)");
	}
	why = copy_and_map(file, pagemap);
	close(file);
	return why;
}

/* --- the checkpoint --- */

const char *surus_snapshot_checkpoint(int maps, int pagemap, int statm)
{
	if (!surus_pages_checkpoint(pagemap)) {
		return "it has written too much memory since the snapshot";
	}
	if (!surus_mappings_checkpoint(maps, statm)) {
		return surus_reason("cannot read /proc/self/maps");
	}
	s->stack_low = ((uintptr_t)__builtin_frame_address(0) - 4096) & ~(uintptr_t)15;
	s->stack_high = surus_mappings_stack_end();
	if (s->stack_high <= s->stack_low || s->stack_high - s->stack_low > STACK_COPY) {
		return "its stack is too deep";
	}
	sigprocmask(SIG_SETMASK, NULL, &s->mask);
	fegetenv(&s->floats);
	if (_setjmp(s->checkpoint)) {
		return NULL; /* restored */
	}
	memcpy(s->stack, (void *)s->stack_low, s->stack_high - s->stack_low);
	return NULL;
}

/* --- restoring --- */

const char *surus_snapshot_check(bool no_calls)
{
	const char *why = no_calls ? NULL : surus_mappings_restore();

	return why ? why : surus_pages_check();
}

static __attribute__((noinline, noreturn)) void restore(bool mask)
{
	s->restore((void *)s->stack_low, s->stack, s->stack_high - s->stack_low, s->stack, s->stack);
	surus_pages_restore();
	surus_mappings_wipe();
	if (mask) {
		sigprocmask(SIG_SETMASK, &s->mask, NULL);
	}
	fesetenv(&s->floats);
	_longjmp(s->checkpoint, 1);
}

void surus_snapshot_restore(bool mask)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), there = s->stack_low - BELOW_CHECKPOINT;

	/* The restoring code must not run in the frames that it restores. */
	if (here > there) {
		volatile char *room = __builtin_alloca(here - there);
		room[0] = 0;
	}
	restore(mask);
}
