/* Makes a descriptor lead somewhere else. */
#ifndef SURUS_BASE_REPLACE_FD_H
#define SURUS_BASE_REPLACE_FD_H

/* Makes `fd` refer to the open file of `own`, with the descriptor flags of before, and closes
 * `own`. */
void surus_fd_replace(int fd, int own);

#endif
