/* Traces a start for `surus lambda profile`: its phases, and the PHP files that it compiles. */
#ifndef SURUS_BASE_STARTUP_TRACE_H
#define SURUS_BASE_STARTUP_TRACE_H

#include <stdbool.h>
#include <stdint.h>

/* Opens the trace if it is wanted; the process started at `started`. False: the reason is on
 * stderr. */
bool surus_startup_trace_open(uint64_t started);
void surus_startup_trace_extensions(void);
void surus_startup_trace_started(void);
/* Records that a phase begins. */
void surus_startup_trace_mark(const char *what);

#endif
