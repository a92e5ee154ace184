/* Shares compiled regular expressions between workers of `fork` and `rewind`, whose PCRE cache does
 * not survive a request.
 *
 * Every worker can write anything into the shared table at any time. So no value is read twice, and
 * the prototype process compiles a copy of checked length, after a child has compiled it within
 * limits. docs/internals/pcre-cache.md says how, and why a forged entry does no harm. */
#include "php/pcre_cache.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <php.h>
#include <ext/pcre/php_pcre.h>
#include <zend_exceptions.h>

#include "base/clock.h"
#include "base/process_state.h"
#include "base/procfs.h"
#include "base/scoreboard_layout.h"

enum {
	SLOTS = 1024,
	PROBES = 8,
	LONGEST = 4064, /* bytes of an expression */
	OFTEN = 2, /* requests that compile an expression before the prototype process does */
	/* microseconds from the boot to the first refresh */
	FIRST_WAIT = 1000000,
	WAIT_FACTOR = 4, /* factor between two waits */
	LONGEST_WAIT = 600000000,
	APART = 20000, /* microseconds between two workers that exit for a refresh */
	TRIAL = 300, /* milliseconds of CPU time for a trial */
	/* and of wall-clock time, for a busy machine; forking goes on meanwhile */
	TRIAL_WAIT = 900,
	MOST_PAGES = 256, /* of memory for one expression */
	MOST_PAGES_IN_ALL = 4096, /* and for all together */
};

enum { FREE, WRITING, WRITTEN };

/* An expression. If a process exits while it writes, the slot stays unread. */
struct slot {
	_Atomic uint32_t state, requests;
	_Atomic uint32_t len;
	_Atomic uint64_t hash;
	char text[LONGEST];
};

static struct table {
	_Atomic uint32_t due; /* expressions that recur often enough */
	_Atomic uint32_t compiled; /* how many of them the prototype process has compiled */
	_Atomic uint64_t not_before, next_leaves;
	struct slot slots[SLOTS];
} *table;

/* The state when this process was forked. */
static uint32_t known, compiled;

/* For the prototype process only. The table has copies for the workers. */
static uint64_t pause_before = FIRST_WAIT, not_before;

static size_t pages_taken;
static bool done[SLOTS]; /* compiled, or rejected for good */

bool surus_pcre_cache_create(void)
{
	/* Unused pages take no memory. */
	void *shared = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
	        -1, 0);

	table = shared == MAP_FAILED ? NULL : shared;
	return table != NULL;
}

void surus_pcre_cache_save(void)
{
	known = PCRE_G(pcre_cache).nNumUsed;
	not_before = surus_clock_now() + pause_before;
	atomic_store(&table->not_before, not_before);
	atomic_store(&table->compiled, compiled);
}

/* Under a locale, PHP's key is the locale's name and the expression. No expression begins like a
 * name. */
static bool is_expression(const zend_string *key)
{
	const char *at = ZSTR_VAL(key);

	while (isspace((unsigned char)*at)) {
		at++;
	}
	return *at != '\0' && *at != '\\' && !isalnum((unsigned char)*at);
}

static void record(zend_string *expression)
{
	uint64_t hash = ZSTR_HASH(expression);

	if (ZSTR_LEN(expression) > LONGEST || !is_expression(expression)) {
		return;
	}
	for (uint64_t i = 0; i < PROBES; i++) {
		struct slot *slot = &table->slots[(hash + i) % SLOTS];
		uint32_t state = FREE;
		if (atomic_compare_exchange_strong(&slot->state, &state, WRITING)) {
			atomic_store(&slot->len, (uint32_t)ZSTR_LEN(expression));
			atomic_store(&slot->hash, hash);
			memcpy(slot->text, ZSTR_VAL(expression), ZSTR_LEN(expression));
			atomic_store(&slot->requests, 1);
			atomic_store(&slot->state, WRITTEN);
			return;
		}
		if (state == WRITTEN && atomic_load(&slot->hash) == hash &&
		        atomic_load(&slot->len) == ZSTR_LEN(expression) &&
		    memcmp(slot->text, ZSTR_VAL(expression), ZSTR_LEN(expression)) == 0) {
			if (atomic_fetch_add(&slot->requests, 1) + 1 == OFTEN) {
				atomic_fetch_add(&table->due, 1);
			}
			return;
		}
	}
}

void surus_pcre_cache_record(void)
{
	HashTable *cache = &PCRE_G(pcre_cache);

	for (uint32_t i = known; i < cache->nNumUsed; i++) {
		if (Z_TYPE(cache->arData[i].val) != IS_UNDEF && cache->arData[i].key) {
			record(cache->arData[i].key);
		}
	}
}

bool surus_pcre_cache_is_due(void)
{
	return atomic_load_explicit(&table->due, memory_order_relaxed) > compiled &&
	        surus_clock_now() >= not_before;
}

/* Whether a refresh is due or done, as far as a worker sees. If a script forges the values, workers
 * are replaced one after the other until the prototype process writes them again. */
static bool is_refresh_wanted(void)
{
	uint32_t by_now = atomic_load_explicit(&table->compiled, memory_order_relaxed);

	return by_now != compiled || (atomic_load_explicit(&table->due, memory_order_relaxed) >
	        by_now &&
	                              surus_clock_now() >= atomic_load_explicit(&table->not_before,
	                              memory_order_relaxed));
}

bool surus_pcre_cache_replaces_worker(void)
{
	if (!is_refresh_wanted()) {
		return false;
	}
	/* One at a time, so that the other workers continue to serve. */
	uint64_t now = surus_clock_now(), next = atomic_load(&table->next_leaves);
	return now >= next && atomic_compare_exchange_strong(&table->next_leaves, &next, now + APART);
}

/* A copy of the slot's current text; NULL if that is not an expression. */
static zend_string *copy(const struct slot *slot)
{
	uint32_t len = atomic_load(&slot->len);

	if (len == 0 || len > LONGEST) {
		return NULL;
	}
	zend_string *expression = zend_string_init(slot->text, len, 1);
	if (is_expression(expression)) {
		return expression;
	}
	zend_string_release_ex(expression, 1);
	return NULL;
}

/* Compiles without the application's error handlers, because the application has not asked for
 * this. */
static void compile(zend_string *expression)
{
	zval error_handler, exception_handler;
	int reporting = EG(error_reporting);
	bool jit = PCRE_G(jit);

	ZVAL_COPY_VALUE(&error_handler, &EG(user_error_handler));
	ZVAL_COPY_VALUE(&exception_handler, &EG(user_exception_handler));
	ZVAL_UNDEF(&EG(user_error_handler));
	ZVAL_UNDEF(&EG(user_exception_handler));
	EG(error_reporting) = 0;
	zend_try {
		pcre_get_compiled_regex_cache(expression);
	} zend_catch {
		CG(unclean_shutdown) = 0;
	} zend_end_try();
	if (EG(exception)) {
		zend_clear_exception();
	}
	EG(error_reporting) = reporting;
	ZVAL_COPY_VALUE(&EG(user_error_handler), &error_handler);
	ZVAL_COPY_VALUE(&EG(user_exception_handler), &exception_handler);
	PCRE_G(jit) = jit;
}

/* Pages of this process without those of files, which a child touches at random. */
static size_t resident(void)
{
	char text[64];
	unsigned long pages = 0, of_files = 0;
	int statm = surus_procfs_open("/proc/self/statm");
	ssize_t len = statm < 0 ? -1 : read(statm, text, sizeof(text) - 1);

	close(statm);
	if (len > 0) {
		text[len] = '\0';
		sscanf(text, "%*u %lu %lu", &pages, &of_files);
	}
	return pages > of_files ? pages - of_files : 0;
}

/* An expression that the prototype process is about to compile. */
struct candidate {
	zend_string *expression;
	uint16_t slot;
	bool tried, is_fit;
};

/* In the child: compiles all candidates and reports the beginning and the result of each. */
static _Noreturn void try_all(const struct candidate *candidates, size_t count, int out)
{
	/* If this child hangs, it must not keep its descriptors open. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	struct itimerval limit = {.it_value.tv_usec = TRIAL * 1000};
	sigset_t none;
	sigemptyset(&none);
	signal(SIGPROF, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setitimer(ITIMER_PROF, &limit, NULL);
	for (size_t i = 0; i < count; i++) {
		size_t before = resident();
		char report = 'b';
		if (write(out, &report, 1) != 1) {
			break;
		}
		compile(candidates[i].expression);
		size_t after = resident();
		report = after > before + MOST_PAGES ? 'l' : 'f';
		if (write(out, &report, 1) != 1) {
			break;
		}
	}
	_exit(0);
}

/* The running trial. */
static struct {
	struct candidate *candidates;
	size_t count, at; /* number of candidates, and the current one */
	pid_t child; /* 0: it has exited */
	int reports; /* the child's reports; -1: none */
	uint64_t end; /* when its time is over */
	bool has_started; /* the current one */
} trial = {.reports = -1};

static void begin_trial(struct candidate *candidates, size_t count)
{
	int pipe_ends[2];

	trial.candidates = candidates;
	trial.count = count;
	trial.at = 0;
	trial.has_started = false;
	trial.end = surus_clock_now() + TRIAL_WAIT * 1000;
	if (pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) {
		return;
	}
	fflush(NULL);
	/* Like a worker's fork: the child is not detached as a script's child. */
	surus_process->forks_workers = true;
	trial.child = fork();
	surus_process->forks_workers = false;
	if (trial.child == 0) {
		close(pipe_ends[0]);
		try_all(candidates, count, pipe_ends[1]);
	}
	/* A child that could not be forked reports nothing, like one that has exited. */
	trial.child = trial.child > 0 ? trial.child : 0;
	close(pipe_ends[1]);
	trial.reports = pipe_ends[0];
}

/* Reads the results so far. A candidate that crashed the child or used up its time fails; those
 * after it are left for the next trial. False: the trial still runs. */
static bool end_trial(void)
{
	bool is_over = trial.reports < 0 || surus_clock_now() >= trial.end;
	char report;

	while (trial.reports >= 0 && trial.at < trial.count) {
		ssize_t got = read(trial.reports, &report, 1);
		if (got < 0 && errno == EINTR) {
			continue;
		}
		if (got < 0 && errno == EAGAIN) {
			break;
		}
		if (got != 1) {
			/* It exited during this one, if it had begun. */
			trial.candidates[trial.at].tried = trial.has_started;
			is_over = true;
			break;
		}
		trial.has_started = report == 'b';
		if (!trial.has_started) {
			trial.candidates[trial.at].tried = true;
			trial.candidates[trial.at++].is_fit = report == 'f';
		}
	}
	if (!is_over && trial.at < trial.count) {
		return false;
	}
	surus_pcre_cache_close_trial();
	if (trial.child > 0) {
		kill(trial.child, SIGKILL);
		while (waitpid(trial.child, NULL, 0) < 0 && errno == EINTR) {
		}
		trial.child = 0;
	}
	return true;
}

void surus_pcre_cache_close_trial(void)
{
	if (trial.reports >= 0) {
		close(trial.reports);
		trial.reports = -1;
	}
}

void surus_pcre_cache_reaped(pid_t pid)
{
	if (trial.child == pid) {
		trial.child = 0;
	}
}

bool surus_pcre_cache_try(void)
{
	if (trial.candidates) {
		return end_trial();
	}
	struct candidate *candidates = calloc(SLOTS, sizeof(*candidates));
	size_t count = 0;

	for (uint16_t i = 0; i < SLOTS && candidates; i++) {
		struct slot *slot = &table->slots[i];
		if (done[i] || atomic_load(&slot->state) != WRITTEN) {
			continue;
		}
		if (atomic_load(&slot->requests) >= OFTEN) {
			zend_string *expression = copy(slot);
			done[i] = !expression;
			if (expression) {
				candidates[count++] = (struct candidate){.expression = expression, .slot = i};
			}
		} else {
			/* Probably specific to one visitor. */
			atomic_store(&slot->state, FREE);
		}
	}
	if (!candidates || count == 0 || pages_taken >= MOST_PAGES_IN_ALL) {
		trial.candidates = candidates;
		trial.count = count;
		return true;
	}
	begin_trial(candidates, count);
	/* Workers exit again when the trial may be over, because the next fork ends it. */
	atomic_store(&table->not_before, trial.end);
	return false;
}

void surus_pcre_cache_compile(void)
{
	uint32_t left = 0;

	size_t before = resident();
	for (size_t i = 0; i < trial.count; i++) {
		struct candidate *candidate = &trial.candidates[i];
		if (candidate->is_fit && pages_taken + (resident() - before) < MOST_PAGES_IN_ALL) {
			compile(candidate->expression);
			compiled++;
		}
		done[candidate->slot] |= candidate->tried || pages_taken >= MOST_PAGES_IN_ALL;
		left += !done[candidate->slot];
		zend_string_release_ex(candidate->expression, 1);
	}
	size_t after = resident();
	pages_taken += after > before ? after - before : 0;
	free(trial.candidates);
	trial.candidates = NULL;
	trial.count = 0;
	/* Overwrites any value. */
	atomic_store(&table->due, compiled + left);
	pause_before = pause_before * WAIT_FACTOR < LONGEST_WAIT ? pause_before * WAIT_FACTOR
	        : LONGEST_WAIT;
}
