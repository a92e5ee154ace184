/* Restores bytes from a copy, with the widest vectors of the processor. */
#include "rewind/memory/copy_back.h"

#include <string.h>

#include "base/scoreboard_layout.h"

enum {
	BLOCK = 256, /* bytes that are compared and written together */
	LINE = 64,
};

/* Writes only blocks that differ: mostly nothing has to be written, and reading is cheaper for the
 * caches. Prefetches the next page, because processors do so only within a page. */
static inline __attribute__((always_inline)) bool restore(void *to, const void *from, size_t size,
        const void *next_to,
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

static bool restore_plainly(void *to, const void *from, size_t size, const void *next_to,
        const void *next_from)
{
	return restore(to, from, size, next_to, next_from);
}

/* clang has no option for full width */
#if defined(__x86_64__) && !defined(__clang__)
#define SURUS_AVX512
static __attribute__((target("avx512f,avx512bw,prefer-vector-width=512"))) bool
restore_by_avx512(void *to, const void *from, size_t size, const void *next_to,
        const void *next_from)
{
	return restore(to, from, size, next_to, next_from);
}
#endif

#ifdef __x86_64__
static __attribute__((target("avx2"))) bool restore_by_avx2(void *to, const void *from, size_t size,
        const void *next_to,
                                                            const void *next_from)
{
	return restore(to, from, size, next_to, next_from);
}
#endif

surus_copy_back *surus_copy_back_fastest(void)
{
#ifdef __x86_64__
#ifdef SURUS_AVX512
	if (__builtin_cpu_supports("avx512bw")) {
		return restore_by_avx512;
	}
#endif
	if (__builtin_cpu_supports("avx2")) {
		return restore_by_avx2;
	}
#endif
	return restore_plainly;
}
