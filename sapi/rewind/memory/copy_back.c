/* Bytes that become again what they were. */
#include "rewind/memory/copy_back.h"

#include <string.h>

#include "base/scoreboard_layout.h"

enum {
	BLOCK = 256, /* bytes that are put back together */
	LINE = 64,
};

/* Writes only where they differ: then mostly nothing has to be written, and reading takes the
 * caches less. Meanwhile what comes next is fetched: processors do so by themselves only within a
 * page. */
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

/* which does not know how to ask for all of their width */
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

surus_restore *surus_restore_fastest(void)
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
