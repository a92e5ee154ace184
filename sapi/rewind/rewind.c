/* The engine that boots once, serves, puts everything back as it was when the boot had ended, and
 * serves again. Rewound is only what is provably complete; otherwise the worker ends after its
 * answer, and the template forks another. */
#include "rewind/rewind.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <php.h>

#include "base/exit_status.h"
#include "base/process_state.h"
#include "base/procfs.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "php/execution_time.h"
#include "php/random_seed.h"
#include "rewind/kernel/kernel_state.h"
#include "rewind/kernel/signals.h"
#include "rewind/memory/pages.h"
#include "rewind/memory/snapshot.h"
#include "rewind/memory/zend_chunks.h"
#include "rewind/memory/zend_heap.h"
#include "rewind/syscall_watch.h"

#if __has_include(<sys/rseq.h>)
#endif

/* Reasons that have been said already, by this worker or another; a text has one address in all of
 * them. */
enum { MAX_SAID = 64 };

static const char *_Atomic *said;

void surus_rewind_prepare(void)
{
	/* All of malloc's memory in one piece, which can be put back by its size: no mappings of its
	 * own, nothing given back in between, no arenas. */
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	mallopt(M_TOP_PAD, 4 << 20);
	mallopt(M_ARENA_MAX, 1);
}

bool surus_rewind_start(void)
{
	void *shared = mmap(NULL, MAX_SAID * sizeof(*said), PROT_READ | PROT_WRITE,
	        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	said = shared;
	return shared != MAP_FAILED && surus_chunks_install();
}

/* The kernel writes the number of our CPU beside libc's own thread data whenever it changes. Put
 * back it would be wrong, and trusted: from here on who asks for the number asks the kernel. */
static void leave_rseq(void)
{
#if __has_include(<sys/rseq.h>)
	enum { UNREGISTER = 1, LEAST = 32 }; /* as the kernel and libc have them */
	void *area = (char *)__builtin_thread_pointer() + __rseq_offset;

	if (__rseq_size > 0) {
		syscall(SYS_rseq, area, __rseq_size > LEAST ? __rseq_size : LEAST, UNREGISTER, RSEQ_SIG);
	}
#endif
}

/* Pages of the address space, at the last checkpoint. */
static size_t pages;

static size_t address_space(void)
{
	int statm = surus_open_own("/proc/self/statm");
	char text[64];
	ssize_t len = statm < 0 ? -1 : read(statm, text, sizeof(text) - 1);

	close(statm);
	text[len < 0 ? 0 : len] = '\0';
	return strtoul(text, NULL, 10);
}

bool surus_rewind_is_outdated(void)
{
	return address_space() != pages;
}

void surus_rewind_checkpoint(void)
{
	int maps = surus_open_own("/proc/self/maps"), smaps =
	        surus_open_own("/proc/self/smaps"), pagemap = surus_open_own("/proc/self/pagemap");
	char nothing;

	/* A libc that fetches random numbers ahead has its memory for them from here on, and need not
	 * map it for every request that draws. */
	(void)!getrandom(&nothing, sizeof(nothing), 0);
	leave_rseq();
	surus_heap_settle();
	surus_chunks_begin();
	const char *why = surus_snapshot_take(maps, smaps, pagemap);
	close(smaps);
	close(maps);
	close(pagemap);
	if (why) {
		fprintf(stderr,
		        "surus-php: this process cannot be rewound: %s; every event gets a fork instead\n",
		        why);
		surus_settings.engine = SURUS_FORK;
	}
	pages = address_space();
}

/* How a reason begins, for those that have an exit status of their own. */
static const struct {
	const char *word;
	int status;
} reasons[] = {
	{"signals: ", SURUS_EXIT_REPLACED_SIGNALS},       {"process: ", SURUS_EXIT_REPLACED_PROCESS},
	{"thread: ", SURUS_EXIT_REPLACED_THREAD},         {"identity: ", SURUS_EXIT_REPLACED_IDENTITY},
	{"limits: ", SURUS_EXIT_REPLACED_LIMITS},         {"native: ", SURUS_EXIT_REPLACED_NATIVE},
	{"descriptor: ", SURUS_EXIT_REPLACED_DESCRIPTOR},
	{"directory: ", SURUS_EXIT_REPLACED_DIRECTORY},
	{"mappings: ", SURUS_EXIT_REPLACED_MAPPINGS},     {"memory: ", SURUS_EXIT_REPLACED_MEMORY},
};

static bool is_said(const char *why)
{
	for (size_t i = 0; i < MAX_SAID; i++) {
		const char *none = NULL;
		if (atomic_compare_exchange_strong(&said[i], &none, why)) {
			return false;
		}
		if (none == why) {
			return true;
		}
	}
	return false;
}

_Noreturn static void replace(const char *why)
{
	int status = SURUS_EXIT_REPLACED;

	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++) {
		if (strncmp(why, reasons[i].word, strlen(reasons[i].word)) == 0) {
			status = reasons[i].status;
		}
	}
	if (!is_said(why)) {
		dprintf(STDERR_FILENO, "surus-php: replaced instead of rewound: %s\n", why);
	}
	surus_set_state(SURUS_RETIRED);
	_exit(status);
}

_Noreturn static void end_differently(const char *what)
{
	dprintf(STDERR_FILENO, "surus-php: %s\n", what);
	surus_set_state(SURUS_RETIRED);
	_exit(SURUS_EXIT_DIFFERS);
}

void surus_rewind_mark(void)
{
	int maps = surus_open_own("/proc/self/maps"), pagemap = surus_open_own("/proc/self/pagemap");
	const char *why = surus_kernel_note();

	surus_calls_prepare();
	surus_limit_prepare();
	if (!why) {
		why = surus_snapshot_mark(maps, pagemap, surus_self->statm);
	}
	if (why) {
		surus_worker_cannot_begin(why);
	}
	if (surus_self->served > 0 && surus_settings.verify_restore) {
		const void *differs = surus_pages_difference();
		if (differs) {
			char text[64];
			snprintf(text, sizeof(text), "rewound memory differs at %p", differs);
			end_differently(text);
		}
	}
	surus_random_renew();
}

void surus_rewind(void)
{
	bool no_calls = surus_calls_none();

	surus_limit_note_threads();
	const char *why = surus_kernel_put_back(no_calls);

	if (no_calls && surus_settings.verify_restore && !surus_kernel_is_as_it_was()) {
		end_differently("rewound memory differs: the kernel keeps something else for this process, "
		        "which has made no system call");
	}
	bool holds = surus_signals_hold();
	if (!why) {
		why = surus_chunks_end();
	}
	if (!why) {
		why = surus_snapshot_check(no_calls);
	}
	if (why) {
		replace(why);
	}
	surus_snapshot_put_back(holds || !no_calls);
}
