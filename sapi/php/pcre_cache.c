/* Regular expressions that events have had PHP compile. PHP keeps them for later requests, and so
 * does php-fpm; a process that ends with its event, or is put back, cannot. So events note which
 * they were, in memory that all processes share, and the template compiles those that have come
 * again, for the workers that it forks from then on. Only the expression's text leaves an event.
 *
 * Every worker can write anything into that memory, at any time. So nothing in it is read twice,
 * and what the template compiles is a copy of its own, of a length that it has checked. That text
 * may be anything an attacker likes. To have it compiled is harmless:
 * - A compiled expression has no effect before somebody matches with it, and it is found by its
 *   exact text only. Who asks for it has the same text compiled, and gets the same result.
 * - To compile takes time and memory, and a bug in the compiler may be reached. So a child of the
 *   template compiles first, and is killed when its time is over; the template goes on forking
 *   workers meanwhile. It compiles only what the child has compiled in time, without a crash and in
 *   little memory.
 * - The memory that all of them take together has a limit, too, after which none is compiled any
 *   more. */
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
	OFTEN = 2,      /* events that have compiled an expression before the template does */
	/* microseconds from the boot to the first time that the template compiles */
	FIRST_WAIT = 1000000,
	WAIT_FACTOR = 4,      /* and how much longer it waits each time after */
	LONGEST_WAIT = 600000000,
	APART = 20000, /* microseconds between two workers that make room for others */
	TRIAL = 300,   /* milliseconds of CPU time that the child has for all that are new */
	/* and of time, on a machine that is busy; the template does not wait for it */
	TRIAL_WAIT = 900,
	MOST_PAGES = 256,       /* of memory for one expression */
	MOST_PAGES_IN_ALL = 4096, /* and for all together */
};

enum { FREE, WRITING, WRITTEN };

/* An expression. A process that dies while it writes leaves a slot that nobody reads. */
struct slot {
	_Atomic uint32_t state, events;
	_Atomic uint32_t len;
	_Atomic uint64_t hash;
	char text[LONGEST];
};

static struct table {
	_Atomic uint32_t due;      /* expressions that have come often enough */
	_Atomic uint32_t compiled; /* those of them that the template has compiled */
	_Atomic uint64_t not_before, next_leaves;
	struct slot slots[SLOTS];
} *table;

/* What this process began with. */
static uint32_t known, compiled;

/* The template's own. What the table says of it is for the workers. */
static uint64_t pause_before = FIRST_WAIT, not_before;

static size_t pages_taken;
static bool done[SLOTS]; /* compiled, or refused for good */

bool surus_regex_start(void)
{
	/* Pages that no expression has come to are no memory yet. */
	void *shared = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
	        -1, 0);

	table = shared == MAP_FAILED ? NULL : shared;
	return table != NULL;
}

void surus_regex_booted(void)
{
	known = PCRE_G(pcre_cache).nNumUsed;
	not_before = surus_now() + pause_before;
	atomic_store(&table->not_before, not_before);
	atomic_store(&table->compiled, compiled);
}

/* Under a locale, PHP's key is the locale's name and the expression. No expression begins as names
 * do. */
static bool is_expression(const zend_string *key)
{
	const char *at = ZSTR_VAL(key);

	while (isspace((unsigned char)*at)) {
		at++;
	}
	return *at != '\0' && *at != '\\' && !isalnum((unsigned char)*at);
}

static void note(zend_string *expression)
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
			atomic_store(&slot->events, 1);
			atomic_store(&slot->state, WRITTEN);
			return;
		}
		if (state == WRITTEN && atomic_load(&slot->hash) == hash &&
		        atomic_load(&slot->len) == ZSTR_LEN(expression) &&
		    memcmp(slot->text, ZSTR_VAL(expression), ZSTR_LEN(expression)) == 0) {
			if (atomic_fetch_add(&slot->events, 1) + 1 == OFTEN) {
				atomic_fetch_add(&table->due, 1);
			}
			return;
		}
	}
}

void surus_regex_note(void)
{
	HashTable *cache = &PCRE_G(pcre_cache);

	for (uint32_t i = known; i < cache->nNumUsed; i++) {
		if (Z_TYPE(cache->arData[i].val) != IS_UNDEF && cache->arData[i].key) {
			note(cache->arData[i].key);
		}
	}
}

bool surus_regex_is_due(void)
{
	return atomic_load_explicit(&table->due, memory_order_relaxed) > compiled &&
	        surus_now() >= not_before;
}

/* Has it been told by now, as far as a worker sees? Where a script makes it look so, workers are
 * replaced one after the other, until the template writes down again how it is. */
static bool is_news(void)
{
	uint32_t by_now = atomic_load_explicit(&table->compiled, memory_order_relaxed);

	return by_now != compiled || (atomic_load_explicit(&table->due, memory_order_relaxed) >
	        by_now &&
	                              surus_now() >= atomic_load_explicit(&table->not_before,
	                              memory_order_relaxed));
}

bool surus_regex_leaves(void)
{
	if (!is_news()) {
		return false;
	}
	/* One after the other, so that the rest goes on serving. */
	uint64_t now = surus_now(), next = atomic_load(&table->next_leaves);
	return now >= next && atomic_compare_exchange_strong(&table->next_leaves, &next, now + APART);
}

/* A copy of what is in a slot by now. NULL: that is none. */
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

/* Without the application hearing of it: it has not asked for this, and this is not the place for
 * its code. */
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

/* Pages of memory that this process has, but for those of files: a child comes to those by and
 * by. */
static size_t resident(void)
{
	char text[64];
	unsigned long pages = 0, of_files = 0;
	int statm = surus_open_own("/proc/self/statm");
	ssize_t len = statm < 0 ? -1 : read(statm, text, sizeof(text) - 1);

	close(statm);
	if (len > 0) {
		text[len] = '\0';
		sscanf(text, "%*u %lu %lu", &pages, &of_files);
	}
	return pages > of_files ? pages - of_files : 0;
}

/* An expression that the template is about to compile. */
struct candidate {
	zend_string *expression;
	uint16_t slot;
	bool tried, is_fit;
};

/* In the child: compiles them, and says of each that it begins with it, and that it is fit. */
static _Noreturn void try_all(const struct candidate *candidates, size_t count, int out)
{
	/* Nobody is to wait for what this child still has open, if it cannot come to an end. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	struct itimerval limit = {.it_value.tv_usec = TRIAL * 1000};
	sigset_t none;
	sigemptyset(&none);
	signal(SIGPROF, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	setitimer(ITIMER_PROF, &limit, NULL);
	for (size_t i = 0; i < count; i++) {
		size_t before = resident();
		char said = 'b';
		if (write(out, &said, 1) != 1) {
			break;
		}
		compile(candidates[i].expression);
		size_t after = resident();
		said = after > before + MOST_PAGES ? 'l' : 'f';
		if (write(out, &said, 1) != 1) {
			break;
		}
	}
	_exit(0);
}

/* The child that tries them, while there is one. */
static struct {
	struct candidate *candidates;
	size_t count, at; /* all, and which it is at */
	pid_t child;      /* 0 when it has ended */
	int words;        /* what it says; -1: there is none */
	uint64_t end;     /* of its time */
	bool has_begun;   /* that one */
} trial = {.words = -1};

static void begin_trial(struct candidate *candidates, size_t count)
{
	int pipe_ends[2];

	trial.candidates = candidates;
	trial.count = count;
	trial.at = 0;
	trial.has_begun = false;
	trial.end = surus_now() + TRIAL_WAIT * 1000;
	if (pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) {
		return;
	}
	fflush(NULL);
	/* As a worker's: none of what cuts off a script's child is for this one. */
	surus_self->forks_workers = true;
	trial.child = fork();
	surus_self->forks_workers = false;
	if (trial.child == 0) {
		close(pipe_ends[0]);
		try_all(candidates, count, pipe_ends[1]);
	}
	/* One that could not be forked says nothing, as one that has ended. */
	trial.child = trial.child > 0 ? trial.child : 0;
	close(pipe_ends[1]);
	trial.words = pipe_ends[0];
}

/* Reads which are fit, as far as that is known. One that has cost the child its life, or its time,
 * is not; what follows it is left for the next time, and all that the machine did not come to.
 * False: the child is at work. */
static bool end_trial(void)
{
	bool is_over = trial.words < 0 || surus_now() >= trial.end;
	char said;

	while (trial.words >= 0 && trial.at < trial.count) {
		ssize_t got = read(trial.words, &said, 1);
		if (got < 0 && errno == EINTR) {
			continue;
		}
		if (got < 0 && errno == EAGAIN) {
			break;
		}
		if (got != 1) {
			/* It has ended amid this one, if it had begun. */
			trial.candidates[trial.at].tried = trial.has_begun;
			is_over = true;
			break;
		}
		trial.has_begun = said == 'b';
		if (!trial.has_begun) {
			trial.candidates[trial.at].tried = true;
			trial.candidates[trial.at++].is_fit = said == 'f';
		}
	}
	if (!is_over && trial.at < trial.count) {
		return false;
	}
	surus_regex_leave_trial();
	if (trial.child > 0) {
		kill(trial.child, SIGKILL);
		while (waitpid(trial.child, NULL, 0) < 0 && errno == EINTR) {
		}
		trial.child = 0;
	}
	return true;
}

void surus_regex_leave_trial(void)
{
	if (trial.words >= 0) {
		close(trial.words);
		trial.words = -1;
	}
}

void surus_regex_reaped(pid_t pid)
{
	if (trial.child == pid) {
		trial.child = 0;
	}
}

bool surus_regex_try(void)
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
		if (atomic_load(&slot->events) >= OFTEN) {
			zend_string *expression = copy(slot);
			done[i] = !expression;
			if (expression) {
				candidates[count++] = (struct candidate){.expression = expression, .slot = i};
			}
		} else {
			/* Made for one visitor, it seems. */
			atomic_store(&slot->state, FREE);
		}
	}
	if (!candidates || count == 0 || pages_taken >= MOST_PAGES_IN_ALL) {
		trial.candidates = candidates;
		trial.count = count;
		return true;
	}
	begin_trial(candidates, count);
	/* Workers leave again when it may be over: the next one that is forked begins with them. */
	atomic_store(&table->not_before, trial.end);
	return false;
}

void surus_regex_compile(void)
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
	/* Whatever was there. */
	atomic_store(&table->due, compiled + left);
	pause_before = pause_before * WAIT_FACTOR < LONGEST_WAIT ? pause_before * WAIT_FACTOR
	        : LONGEST_WAIT;
}
