/* Maps the scoreboard, and writes this worker's state into its line. */
#ifndef SURUS_BASE_SCOREBOARD_H
#define SURUS_BASE_SCOREBOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/scoreboard_layout.h"

extern struct surus_line *surus_lines; /* one per worker */
extern _Atomic uint64_t *surus_tickets; /* one per slot (scoreboard_layout.h) */

/* Maps the scoreboard; in the master process, after the settings have been read. False, with errno:
 * it cannot be mapped. */
bool surus_scoreboard_open(int fd);

void surus_scoreboard_set_state(enum surus_state state);

#endif
