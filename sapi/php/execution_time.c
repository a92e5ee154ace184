/* max_execution_time where a process is rewound: seconds of CPU time for each event, by PHP's own
 * timer. To set and to stop it takes two system calls an event; so it runs on from event to event
 * here, and who is interrupted looks how long the event has taken. What the process has used up to
 * its beginning is known: rewind/memory/pages.c asks after each event, for the page faults. */
#include "php/execution_time.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/single_threaded.h>
#include <sys/time.h>

#include <php.h>

#include "base/persistent_map.h"
#include "base/process_state.h"
#include "base/settings.h"
#include "base/syscall_gate.h"
#include "ipc/request_decode.h"

/* Not restored by a rewind. */
static struct limit {
	/* of CPU time, for which the timer was set that runs on from event to event; 0: none does */
	int64_t seconds;
	bool is_ours;    /* who is called when they are over */
	uint64_t set_at; /* in microseconds of CPU time of this process */
	uint64_t began;  /* when the event in our hands has */
	uint64_t others; /* of threads that have ended */
} *limit;

bool surus_limit_create(void)
{
	limit = surus_persistent_alloc(sizeof(*limit));
	return limit != NULL;
}

/* PHP's own, which is there from its start on. Set in a worker, before the mark. */
static struct sigaction plain;

static uint64_t micros(const struct rusage *usage)
{
	return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
	       (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

static uint64_t used_by(int who)
{
	struct rusage usage;

	getrusage(who, &usage);
	return micros(&usage);
}

void surus_limit_note(int who, const struct rusage *usage)
{
	limit->began = micros(usage) + (who == RUSAGE_THREAD ? limit->others : 0);
}

void surus_limit_note_threads(void)
{
	if (!__libc_single_threaded) {
		uint64_t ours = used_by(RUSAGE_THREAD), all = used_by(RUSAGE_SELF);
		limit->others = all - ours;
	}
}

static void run(uint64_t us)
{
	struct itimerval timer = {.it_value =
	        {.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)}};

	setitimer(ITIMER_PROF, &timer, NULL);
}

/* How much of its time the event in our hands has left, in microseconds. */
static uint64_t left(uint64_t seconds)
{
	uint64_t used = used_by(RUSAGE_SELF) - limit->began;

	return used < seconds * 1000000 ? seconds * 1000000 - used : 0;
}

static void on_time(int number, siginfo_t *info, void *context)
{
	zend_long seconds = EG(timeout_seconds);
	int saved = errno;

	/* A child of the script has a time of its own. */
	if (!surus_self->child) {
		bool runs = surus_request->id && seconds > 0;
		uint64_t us = runs ? left((uint64_t)seconds) : 0;
		if (us > 0) {
			run(us);
			errno = saved;
			return;
		}
		limit->seconds = 0;
		if (!runs) {
			return;
		}
		/* PHP sets a timer and its handler anew from here on. */
		limit->is_ours = false;
	}
	if (plain.sa_flags & SA_SIGINFO) {
		plain.sa_sigaction(number, info, context);
	} else {
		plain.sa_handler(number);
	}
}

void surus_limit_prepare(void)
{
	sigaction(SIGPROF, NULL, &plain);
}

void surus_limit_begin(void)
{
	zend_long seconds = EG(timeout_seconds);
	bool goes_on = surus_settings.engine == SURUS_REWIND && plain.sa_handler != SIG_DFL &&
	        plain.sa_handler != SIG_IGN;

	if (seconds <= 0) {
		return;
	}
	/* Set anew when half of it is over, so that events that take their time are hardly ever
	 * interrupted. */
	if (goes_on && seconds == limit->seconds &&
	        limit->began - limit->set_at < (uint64_t)seconds * 1000000 / 2) {
		return;
	}
	unsigned char before = surus_calls_are_ours();
	if (goes_on && !limit->is_ours) {
		struct sigaction ours = plain;
		ours.sa_sigaction = on_time;
		/* PHP without its own handling of signals has its handler called once. */
		ours.sa_flags = (ours.sa_flags & ~(SA_RESETHAND | SA_NODEFER)) | SA_SIGINFO | SA_RESTART;
		sigaction(SIGPROF, &ours, NULL);
		limit->is_ours = true;
	}
	zend_set_timeout(seconds, 0);
	limit->seconds = goes_on ? seconds : 0;
	limit->set_at = limit->began;
	surus_calls_are_scripts(before);
}

void surus_limit_end(void)
{
	zend_long seconds = EG(timeout_seconds);

	/* From here on nobody interrupts it, and what is set from here on shows. */
	EG(timeout_seconds) = SURUS_NO_LIMIT;
	atomic_signal_fence(memory_order_seq_cst);
	if (seconds != limit->seconds) {
		/* The script has asked for another time, or its own is over. */
		unsigned char before = surus_calls_are_ours();
		run(0);
		surus_calls_are_scripts(before);
		limit->seconds = 0;
	}
	zend_atomic_bool_store_ex(&EG(timed_out), false);
}
