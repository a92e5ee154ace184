/* How a start goes, for `surus lambda profile`: when its parts begin, and which PHP files it
 * compiles or finds in OPcache. Noted in */
#ifndef SURUS_BASE_STARTUP_TRACE_H
#define SURUS_BASE_STARTUP_TRACE_H

#include <stdbool.h>
#include <stdint.h>

/* Opens the notes when they are wanted; the process has begun at `started`. False: said on
 * stderr. */
bool surus_profile_open(uint64_t started);
void surus_profile_extensions(void);
void surus_profile_started(void);
/* Notes that something begins or ends. */
void surus_profile_mark(const char *what);

#endif
