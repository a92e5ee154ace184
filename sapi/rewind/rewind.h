/* The engine `rewind`: takes the snapshot, checkpoints a worker, restores it after each request. */
#ifndef SURUS_REWIND_REWIND_H
#define SURUS_REWIND_REWIND_H

#include <stdbool.h>

/* Before anything allocates memory: lets malloc keep all of it in one piece. */
void surus_rewind_configure_malloc(void);
/* When PHP has started, before it runs any code. */
bool surus_rewind_start(void);
/* In the prototype process, when its application has booted: takes the snapshot. If that fails,
 * reports it and switches to the engine `fork`. */
void surus_rewind_snapshot(void);
/* In the prototype process: whether its mappings have changed since the snapshot. */
bool surus_rewind_is_outdated(void);
/* In a worker, before its first request: sets the checkpoint. Returns once per request. */
void surus_rewind_checkpoint(void);
/* Restores the checkpoint; exits if the restore would be incomplete. */
_Noreturn void surus_rewind(void);

#endif
