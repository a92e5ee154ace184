/* Where PHP's library may be called directly: made by crates/php/build.rs for the library that it
 * has found. */
#ifndef SURUS_DIRECT_H
#define SURUS_DIRECT_H

#include <stddef.h>

/* The library's build ID (NT_GNU_BUILD_ID); without a byte where there is nothing to be done. */
extern const unsigned char surus_direct_id[];
extern const size_t surus_direct_id_len;

/* Distances from each instruction to the next, LEB128; the first is from the library's
 * beginning. */
extern const unsigned char surus_direct_sites[];
extern const size_t surus_direct_sites_len;

/* Has PHP's library call its own functions directly. Before there are threads, and before PHP
 * starts. */
void surus_direct_calls(void);

/* So many bytes of the library's code are anonymous memory now. */
size_t surus_direct_replaced(void);

/* How that has gone, as the report says it: "on", "off", "other library" than at the build,
 * "impossible: WHY", "failed: WHY". */
const char *surus_direct_state(void);

#endif
