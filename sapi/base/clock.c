/* Reads the clock that deadlines and worker states use. */
#include "base/clock.h"

#include <time.h>

uint64_t surus_clock_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}
