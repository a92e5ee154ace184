/* The wall clock of a process: ahead or back by the number of seconds in the file TEST_CLOCK. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead;

static __attribute__((constructor)) void begin(void)
{
	const char *file = getenv("TEST_CLOCK");
	int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
	void *shared;

	if (fd < 0) {
		return;
	}
	shared = mmap(NULL, sizeof(*ahead), PROT_READ, MAP_SHARED, fd, 0);
	if (shared != MAP_FAILED) {
		ahead = shared;
	}
	close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	if (syscall(SYS_clock_gettime, clock, now) != 0) {
		return -1;
	}
	if (ahead && clock == CLOCK_REALTIME) {
		now->tv_sec += *ahead;
	}
	return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec read;

	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &read) != 0) {
		return -1;
	}
	now->tv_sec = read.tv_sec;
	now->tv_usec = read.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *now)
{
	struct timespec read = {0};

	clock_gettime(CLOCK_REALTIME, &read);
	if (now) {
		*now = read.tv_sec;
	}
	return read.tv_sec;
}
