/* Writes the state of this worker into its line of the scoreboard, and reads the lines of the
 * others. */
#ifndef SURUS_BASE_SCOREBOARD_H
#define SURUS_BASE_SCOREBOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/scoreboard_layout.h"

extern struct surus_line *surus_lines;    /* one per worker */
extern _Atomic uint64_t *surus_tickets; /* one per request id (scoreboard_layout.h) */

/* In the template, after the settings have been read: maps the scoreboard. False, with errno: it
 * cannot be mapped. */
bool surus_scoreboard_open(int fd);

/* In a worker: does another have an event in its hands? */
bool surus_template_others_work(void);
void surus_set_state(enum surus_state state);

#endif
