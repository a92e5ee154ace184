/* Shifts the time of day that PHP sees, to find what of a boot depends on it. */
#ifndef SURUS_BASE_CLOCK_SHIFT_H
#define SURUS_BASE_CLOCK_SHIFT_H

/* Adds these seconds to the time of day in this process from now on; 0: none. */
void surus_clock_shift(long seconds);

#endif
