/* Handles the boot's descriptors without a file: eventfds, and kinds that workers would share. */
#ifndef SURUS_REWIND_KERNEL_ANON_FDS_H
#define SURUS_REWIND_KERNEL_ANON_FDS_H

#include <stdbool.h>
#include <stdint.h>

/* Names what workers would share; NULL if the descriptor is nothing of that kind. */
const char *surus_anon_fds_find_shared(int fd);
/* In a worker, before the checkpoint: replaces an eventfd by one of its own. False: it is none. */
bool surus_anon_fds_take_counter(int fd, uint64_t *count);
/* Sets the counter to `count`. False: that failed. */
bool surus_anon_fds_restore_counter(int fd, uint64_t count);

#endif
