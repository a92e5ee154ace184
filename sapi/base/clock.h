/* Reads the clock that deadlines and worker states use. */
#ifndef SURUS_BASE_CLOCK_H
#define SURUS_BASE_CLOCK_H

#include <stdint.h>

/* CLOCK_MONOTONIC in microseconds. */
uint64_t surus_clock_now(void);

#endif
