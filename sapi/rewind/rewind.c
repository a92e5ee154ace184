/* The engine `rewind`: takes the snapshot, checkpoints a worker, restores it after each request. If
 * the restore would be incomplete, the worker exits after its response and is replaced. */
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
#include "base/reason.h"
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

/* Reasons that any worker has reported; a string has the same address in all workers. */
enum { MAX_REPORTED = 64 };

static const char *_Atomic *reported;

void surus_rewind_configure_malloc(void)
{
	/* Keeps all of malloc's memory in one piece that can be restored by its size: no mmap() per
	 * block, no trimming, no arenas. */
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	mallopt(M_TOP_PAD, 4 << 20);
	mallopt(M_ARENA_MAX, 1);
}

bool surus_rewind_start(void)
{
	void *shared = mmap(NULL, MAX_REPORTED * sizeof(*reported), PROT_READ | PROT_WRITE,
	        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	reported = shared;
	return shared != MAP_FAILED && surus_chunks_install();
}

/* Unregisters rseq: the kernel writes the current CPU's number into libc's thread data. A restored
 * number would be wrong, so from here on libc asks the kernel. */
static void unregister_rseq(void)
{
	enum { UNREGISTER = 1, LEAST = 32 }; /* as in the kernel and libc */
	void *area = (char *)__builtin_thread_pointer() + __rseq_offset;

	if (__rseq_size > 0) {
		syscall(SYS_rseq, area, __rseq_size > LEAST ? __rseq_size : LEAST, UNREGISTER, RSEQ_SIG);
	}
}

/* Pages of the address space at the last snapshot. */
static size_t pages;

static size_t address_space(void)
{
	int statm = surus_procfs_open("/proc/self/statm");
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

/* Opens a file of /proc/self. NULL, or why that failed. */
static const char *open_own(const char *path, int *fd)
{
	char what[64];

	*fd = surus_procfs_open(path);
	if (*fd >= 0) {
		return NULL;
	}
	snprintf(what, sizeof(what), "cannot open %s", path);
	return surus_reason(what);
}

void surus_rewind_snapshot(void)
{
	int maps = -1, smaps = -1, pagemap = -1;
	char nothing;
	const char *why = open_own("/proc/self/maps", &maps);

	why = why ? why : open_own("/proc/self/smaps", &smaps);
	why = why ? why : open_own("/proc/self/pagemap", &pagemap);

	/* Makes a libc that prefetches random numbers map its memory for them now, and not again in
	 * every request. */
	(void)!getrandom(&nothing, sizeof(nothing), 0);
	unregister_rseq();
	surus_heap_pad();
	surus_chunks_record();
	why = why ? why : surus_snapshot_take(maps, smaps, pagemap);
	close(smaps);
	close(maps);
	close(pagemap);
	if (why) {
		fprintf(stderr,
		        "surus-php: cannot rewind this process: %s; every request gets a fork "
		        "instead\n", why);
		surus_settings.engine = SURUS_FORK;
	}
	pages = address_space();
}

/* Prefixes of reasons that have an exit status of their own. */
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

static bool is_reported(const char *why)
{
	for (size_t i = 0; i < MAX_REPORTED; i++) {
		const char *none = NULL;
		if (atomic_compare_exchange_strong(&reported[i], &none, why)) {
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
	if (!is_reported(why)) {
		dprintf(STDERR_FILENO, "surus-php: replaced instead of rewound: %s\n", why);
	}
	surus_scoreboard_set_state(SURUS_EXITING);
	_exit(status);
}

_Noreturn static void exit_as_different(const char *what)
{
	dprintf(STDERR_FILENO, "surus-php: restored state differs from the checkpoint: %s\n", what);
	surus_scoreboard_set_state(SURUS_EXITING);
	_exit(SURUS_EXIT_VERIFY_FAILED);
}

void surus_rewind_checkpoint(void)
{
	int maps = -1, pagemap = -1;
	const char *why = open_own("/proc/self/maps", &maps);

	why = why ? why : open_own("/proc/self/pagemap", &pagemap);
	why = why ? why : surus_kernel_checkpoint();
	if (!why && !surus_procfs_unguard()) {
		why = surus_reason("cannot give up the saved group (setresgid)");
	}
	surus_syscall_watch_prepare();
	surus_execution_time_prepare();
	if (!why) {
		why = surus_snapshot_checkpoint(maps, pagemap, surus_process->statm);
	}
	if (why) {
		surus_process_abort_setup(why);
	}
	if (surus_process->served > 0 && surus_settings.verify_restore) {
		const void *differs = surus_pages_difference();
		if (differs) {
			char text[64];
			snprintf(text, sizeof(text), "memory at %p", differs);
			exit_as_different(text);
		}
	}
	surus_random_reseed();
}

void surus_rewind(void)
{
	bool no_calls = surus_syscall_watch_end();

	surus_execution_time_save_threads();
	const char *why = surus_kernel_restore(no_calls);

	if (no_calls && surus_settings.verify_restore && !surus_kernel_is_restored()) {
		exit_as_different("kernel state, although the request "
		        "made no system call");
	}
	bool holds = surus_signals_block();
	if (!why) {
		why = surus_chunks_end();
	}
	if (!why) {
		why = surus_snapshot_check(no_calls);
	}
	if (why) {
		replace(why);
	}
	surus_snapshot_restore(holds || !no_calls);
}
