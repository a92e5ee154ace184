/* Replaces libc's functions that tell the time of day, so that it can be shifted to find what of a
 * boot depends on it. */
#include "base/clock_shift.h"

#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

static long shift;

void surus_clock_shift(long seconds)
{
	shift = seconds;
}

#ifndef __SANITIZE_ADDRESS__
/* Replaced for PHP itself. Extensions that PHP loads with RTLD_DEEPBIND still find libc's. The
 * first calls come while a single thread runs. */

time_t time(time_t *to)
{
	static time_t (*original)(time_t *);

	if (!original) {
		original = (time_t (*)(time_t *))dlsym(RTLD_NEXT, "time");
	}
	time_t now = original(NULL) + shift;
	if (to) {
		*to = now;
	}
	return now;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone)
{
	static int (*original)(struct timeval *, void *);

	if (!original) {
		original = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
	}
	int failed = original(to, zone);
	if (!failed) {
		to->tv_sec += shift;
	}
	return failed;
}

int clock_gettime(clockid_t clock, struct timespec *to)
{
	static int (*original)(clockid_t, struct timespec *);

	if (!original) {
		original = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	}
	int failed = original(clock, to);
	if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
		to->tv_sec += shift;
	}
	return failed;
}
#endif
