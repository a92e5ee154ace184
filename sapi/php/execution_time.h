/* max_execution_time where a process is rewound: seconds of CPU time for each event, by PHP's own
 * timer. To set and to stop it takes two system */
#ifndef SURUS_PHP_EXECUTION_TIME_H
#define SURUS_PHP_EXECUTION_TIME_H

#include <stdbool.h>

struct rusage;

/* In the template, before anything is forked. False: no memory. */
bool surus_limit_create(void);
/* In a worker that is rewound, before the mark. */
void surus_limit_prepare(void);

/* Before an event: so much CPU time has been used. */
void surus_limit_note(int who, const struct rusage *usage);

/* After one, as long as it is known whether it had threads: what those have used is not the next
 * one's. */
void surus_limit_note_threads(void);

/* From here on the event's time counts, if it has a limit. */
void surus_limit_begin(void);

/* From here on it does not. EG(timeout_seconds) becomes no time at all, and so shows whether one is
 * set again. */
enum { SURUS_NO_LIMIT = -1 };

void surus_limit_end(void);

#endif
