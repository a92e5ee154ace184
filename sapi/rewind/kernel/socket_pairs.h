/* Gives each worker its own copies of the boot's socket pairs and pipes with both ends. */
#ifndef SURUS_REWIND_KERNEL_SOCKET_PAIRS_H
#define SURUS_REWIND_KERNEL_SOCKET_PAIRS_H

#include <stdbool.h>
#include <sys/stat.h>

/* At the end of the boot: finds its socket pairs. NULL, or why workers cannot have such a pair. */
const char *surus_pairs_add_sockets(const unsigned char *open_ones, int last);
/* The same for an end of a pipe that has both ends in this process. False: it contains data. */
bool surus_pairs_add_pipe(int fd, const struct stat *file);
/* Whether the descriptor is one of these ends. */
bool surus_pairs_has(int fd);
/* In a worker, before the checkpoint: makes its own pairs. NULL, or why that failed. */
const char *surus_pairs_take(void);
/* After a request: whether all pairs are empty. */
bool surus_pairs_are_empty(void);

#endif
