/* Binds calls inside PHP's library directly, bypassing its symbol table.
 *
 * docs/reference/configuration.md says why. The build finds the instructions, for one library. The
 * master process replaces the library's code by a copy that contains the addresses. Each
 * instruction is checked before it is changed; if anything is unexpected, the code stays as it
 * is. */
#include "php/direct_binding.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <php.h>
#include <php_main.h>

#include "base/scoreboard_layout.h"

#define HUGE_PAGE ((uintptr_t)2 << 20)

static const char *state = "off";
static size_t replaced;

struct library {
	const char *file;
	uintptr_t base, end;
	uintptr_t code, code_end; /* whole pages */
	off_t offset; /* of the code in the file */
	size_t in_file; /* bytes of the code that come from the file; zeros follow */
	bool is_analysed; /* the library that the build has analysed */
	/* the table is complete, not filled in lazily */
	bool is_bound;
};

static bool has_build_id(uintptr_t at, uintptr_t end)
{
	while (at + sizeof(ElfW(Nhdr)) <= end) {
		const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
		uintptr_t name = at + sizeof(*note), value = name + ((note->n_namesz + 3) & ~3u);

		if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 &&
		        memcmp((const char *)name, "GNU", 4) == 0) {
			return note->n_descsz == surus_direct_id_len &&
			        memcmp((const void *)value, surus_direct_id, surus_direct_id_len) == 0;
		}
		at = value + ((note->n_descsz + 3) & ~3u);
	}
	return false;
}

static bool binds_at_once(const ElfW(Dyn) *entry)
{
	for (; entry->d_tag != DT_NULL; entry++) {
		if (entry->d_tag == DT_BIND_NOW ||
		        (entry->d_tag == DT_FLAGS && entry->d_un.d_val & DF_BIND_NOW) ||
		    (entry->d_tag == DT_FLAGS_1 && entry->d_un.d_val & DF_1_NOW)) {
			return true;
		}
	}
	return false;
}

/* Finds the library that contains php_request_startup(). */
static int find(struct dl_phdr_info *info, size_t size, void *found)
{
	struct library *library = found;
	uintptr_t known = (uintptr_t)php_request_startup, page = (uintptr_t)sysconf(_SC_PAGESIZE);

	library->code = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t start = info->dlpi_addr + segment->p_vaddr, end = start + segment->p_memsz;

		if (segment->p_type == PT_LOAD) {
			library->end = end;
			if (known >= start && known < end) {
				library->code = start & ~(page - 1);
				library->code_end = (end + page - 1) & ~(page - 1);
				library->offset = (off_t)(segment->p_offset - (start - library->code));
				library->in_file = start + segment->p_filesz - library->code;
			}
		} else if (segment->p_type == PT_NOTE) {
			library->is_analysed |= has_build_id(start, end);
		} else if (segment->p_type == PT_DYNAMIC) {
			library->is_bound |= binds_at_once((const ElfW(Dyn) *)start);
		}
	}
	if (!library->code) {
		library->is_analysed = library->is_bound = false;
	}
	library->file = info->dlpi_name;
	library->base = info->dlpi_addr;
	return library->code != 0;
}

static int32_t read32(const unsigned char *at)
{
	int32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/* Makes the instruction of `len` bytes, whose last four are the distance of its operand, refer to
 * `target`. False: it is too far away. */
static bool aim(unsigned char *copy, uintptr_t at, size_t len, uintptr_t target)
{
	intptr_t distance = (intptr_t)(target - (at + len));
	int32_t operand = (int32_t)distance;

	if (operand != distance) {
		return false;
	}
	memcpy(copy + len - sizeof(operand), &operand, sizeof(operand));
	return true;
}

/* The slot of the table at this address; NULL if it is outside the library. */
static const uintptr_t *slot_at(const struct library *library, uintptr_t address)
{
	return address >= library->base && address + sizeof(uintptr_t) <= library->end
	        ? (const uintptr_t *)address : NULL;
}

/* The slot that the stub at `address` (.plt, .plt.sec) jumps through; NULL if it is not a stub. */
static const uintptr_t *slot_of_stub(const struct library *library, uintptr_t address)
{
	static const unsigned char endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	const unsigned char *stub = (const unsigned char *)address;

	if (address < library->code || address + 16 > library->code_end) {
		return NULL;
	}
	stub += memcmp(stub, endbr64, sizeof(endbr64)) == 0 ? sizeof(endbr64) : 0;
	stub += *stub == 0xf2; /* bnd */
	return stub[0] == 0xff && stub[1] == 0x25
	        ? slot_at(library, (uintptr_t)stub + 6 + (uintptr_t)(intptr_t)read32(stub + 2)) : NULL;
}

/* Changes the instruction at `at` in its copy. False: it is an unexpected instruction. */
static bool change(const struct library *library, unsigned char *copy, uintptr_t at)
{
	/* call, jmp rel32 */
	bool calls = copy[0] == 0xe8 || copy[0] == 0xe9;
	/* mov rel32(%rip), register */
	bool loads = (copy[0] & 0xfb) == 0x48 && copy[1] == 0x8b && (copy[2] & 0xc7) == 0x05;
	size_t len = calls ? 5 : 7;
	uintptr_t operand;
	const uintptr_t *slot;

	if (!calls && !loads) {
		return false;
	}
	operand = at + len + (uintptr_t)(intptr_t)read32(copy + len - 4);
	slot = calls ? slot_of_stub(library, operand) : slot_at(library, operand);
	if (!slot) {
		return false;
	}
	/* Symbols of other libraries stay in the table: profilers replace them later (read(),
	 * write()). */
	if (*slot >= library->base && *slot < library->end && aim(copy, at, len, *slot) && loads) {
		copy[1] = 0x8d; /* lea */
	}
	return true;
}

static bool change_all(const struct library *library, unsigned char *copy)
{
	const unsigned char *coded = surus_direct_sites, *end = coded + surus_direct_sites_len;
	uintptr_t at = library->base;

	while (coded < end) {
		uintptr_t distance = 0;
		for (int shift = 0;; shift += 7) {
			distance |= (uintptr_t)(*coded & 0x7f) << shift;
			if (!(*coded++ & 0x80)) {
				break;
			}
		}
		at += distance;
		if (at < library->code || at + 8 > library->code_end ||
		        !change(library, copy + (at - library->code), at)) {
			return false;
		}
	}
	return true;
}

/* Reads the code from its file. False: it cannot be read or differs from memory, as under a tracer
 * (uprobes), whose breakpoints need the file's mapping. */
static bool read_code(const struct library *library, unsigned char *copy)
{
	int file = open(library->file, O_RDONLY | O_CLOEXEC);
	size_t done = 0;
	ssize_t len = 0;

	while (file >= 0 && done < library->in_file &&
	        (len = pread(file, copy + done, library->in_file - done,
	        library->offset + (off_t)done)) > 0) {
		done += (size_t)len;
	}
	if (file >= 0) {
		close(file);
	}
	return done == library->in_file && memcmp(copy, (const void *)library->code, done) == 0;
}

/* Makes the copy executable and moves it to the library's place. NULL, or what failed. */
static const char *put(const struct library *library, unsigned char *copy, size_t size)
{
	if (mprotect(copy, size, PROT_READ | PROT_EXEC) != 0) {
		/* systemd's MemoryDenyWriteExecute, SELinux's execmem */
		return errno == ENOMEM ? "failed: cannot allocate the copy of PHP's code"
		                       : "failed: the system forbids new executable memory";
	}
#ifdef PR_SET_VMA
	/* the name in /proc/PID/maps */
	prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, copy, size, "code of PHP's library");
#endif
	if (mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)library->code) ==
	        MAP_FAILED) {
		/* The old code may have been unmapped already. */
		perror("surus-php: cannot replace PHP's code (engine.direct_binding): mremap");
		_exit(1);
	}
	replaced = size;
	return NULL;
}

static const char *replace(const struct library *library)
{
	size_t size = library->code_end - library->code, area_size = size + 3 * HUGE_PAGE;
	unsigned char *area = mmap(NULL, area_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
	        -1, 0), *copy;
	const char *failed;

	if (area == MAP_FAILED) {
		return "failed: cannot allocate the copy of PHP's code";
	}
	/* With huge pages if possible. The moved pages are mapped one by one, but lie next to each
	 * other in memory, so one TLB entry covers several. */
	madvise(area, area_size, MADV_HUGEPAGE);
	copy = area + (-(uintptr_t)area & (HUGE_PAGE - 1)) + (library->code & (HUGE_PAGE - 1));
	if (!read_code(library, copy)) {
		failed = "failed: its code differs from its file, as under a tracer";
	} else if (!change_all(library, copy)) {
		failed = "failed: its code differs from the build's";
	} else {
		failed = put(library, copy, size);
	}
	/* The rest of the area. Other mappings may lie in between by now. */
	munmap(area, (size_t)(copy - area));
	munmap(failed ? copy : copy + size, (size_t)(area + area_size - copy) - (failed ? 0 : size));
	return failed ? failed : "on";
}

void surus_direct_binding_apply(void)
{
	struct library library = {0};
	const char *at_once = getenv("LD_BIND_NOW");

	if (surus_direct_sites_len == 0) {
#ifdef __x86_64__
		state = "impossible: the build has not analysed PHP's library";
#else
		state = "impossible: only on x86-64";
#endif
		return;
	}
	dl_iterate_phdr(find, &library);
	if (!library.is_analysed) {
		state = "other library";
	} else if (library.is_bound || (at_once && *at_once)) {
		state = replace(&library);
	} else {
		state = "impossible: PHP's library is bound lazily; it must be linked with -z now";
	}
}

size_t surus_direct_binding_bytes(void)
{
	return replaced;
}

const char *surus_direct_binding_state(void)
{
	return state;
}
