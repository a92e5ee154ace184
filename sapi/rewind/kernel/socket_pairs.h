/* Pairs of the boot: sockets and pipes whose both ends are its own. Between workers, or between
 * events, they would be a channel; so each */
#ifndef SURUS_REWIND_KERNEL_SOCKET_PAIRS_H
#define SURUS_REWIND_KERNEL_SOCKET_PAIRS_H

#include <stdbool.h>
#include <sys/stat.h>

/* At the end of the boot: notes its pairs of sockets. NULL, or why workers cannot have such a
 * pair. */
const char *surus_pairs_note_sockets(const unsigned char *open_ones, int last);
/* The same for an end of a pipe whose both ends are the boot's. False: something is in it. */
bool surus_pairs_note_pipe(int fd, const struct stat *file);
/* Has it been noted? */
bool surus_pairs_has(int fd);
/* In a worker, before the mark: makes pairs of its own. NULL, or why that cannot be. */
const char *surus_pairs_own(void);
/* After an event: has it left nothing in them? */
bool surus_pairs_are_empty(void);

#endif
