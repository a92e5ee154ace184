/* The engine that boots once, serves, puts everything back as it was when the boot had ended, and serves again. Rewound is only what
 * is provably complete; otherwise the worker ends after its answer, and the template forks another. */
#include "rewind.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <php.h>

#include "snapshot.h"
#include "surus.h"

void surus_rewind_prepare(void)
{
	/* All of malloc's memory in one piece, which can be put back by its size: no mappings of its own, nothing given back in
	 * between, no arenas. */
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	mallopt(M_TOP_PAD, 4 << 20);
	mallopt(M_ARENA_MAX, 1);
}

bool surus_rewind_start(void)
{
	return surus_chunks_install();
}

void surus_rewind_checkpoint(void)
{
	int maps = surus_open_own("/proc/self/maps"), pagemap = surus_open_own("/proc/self/pagemap");

	surus_chunks_begin();
	const char *why = surus_snapshot_take(maps, pagemap);
	close(maps);
	close(pagemap);
	if (why) {
		fprintf(stderr, "surus-php: this process cannot be rewound: %s; every event gets a fork instead\n", why);
		surus_settings.engine = SURUS_FORK;
	}
}

_Noreturn static void replace(const char *why)
{
	fprintf(stderr, "surus-php: replaced instead of rewound: %s\n", why);
	surus_set_state(SURUS_RETIRED);
	_exit(SURUS_EXIT_REPLACED);
}

void surus_rewind_mark(void)
{
	int maps = surus_open_own("/proc/self/maps"), pagemap = surus_open_own("/proc/self/pagemap");
	const char *why = surus_kernel_note();

	if (!why) {
		why = surus_snapshot_mark(maps, pagemap, surus_self->statm);
	}
	if (why) {
		replace(why);
	}
	if (surus_self->served > 0 && surus_settings.paranoid) {
		const void *differs = surus_snapshot_difference();
		if (differs) {
			fprintf(stderr, "surus-php: rewound memory differs at %p\n", differs);
			surus_set_state(SURUS_RETIRED);
			_exit(SURUS_EXIT_DIFFERS);
		}
	}
	surus_random_renew();
}

void surus_rewind(void)
{
	const char *why = surus_kernel_put_back();

	if (!why) {
		why = surus_chunks_end();
	}
	if (!why) {
		why = surus_snapshot_check();
	}
	if (why) {
		replace(why);
	}
	surus_snapshot_put_back();
}
