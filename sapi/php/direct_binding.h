/* Binds calls inside PHP's library directly. crates/php/build.rs generates the list of places. */
#ifndef SURUS_PHP_DIRECT_BINDING_H
#define SURUS_PHP_DIRECT_BINDING_H

#include <stddef.h>

/* The library's build ID (NT_GNU_BUILD_ID); empty if the build has found no places. */
extern const unsigned char surus_direct_id[];
extern const size_t surus_direct_id_len;

/* Distances from each instruction to the next, LEB128; the first is from the start of the
 * library. */
extern const unsigned char surus_direct_sites[];
extern const size_t surus_direct_sites_len;

/* Applies direct binding. Before PHP starts and before there are threads. */
void surus_direct_binding_apply(void);

/* Bytes of the library's code that are anonymous memory now. */
size_t surus_direct_binding_bytes(void);

/* The result for the start-up report: "on", "off", "other library" than at the build, "impossible:
 * WHY", "failed: WHY". */
const char *surus_direct_binding_state(void);

#endif
