/* Restores the status flags (such as O_NONBLOCK) of descriptors that requests may have changed. */
#ifndef SURUS_PHP_FD_FLAGS_H
#define SURUS_PHP_FD_FLAGS_H

/* Hooks the functions that change them; when PHP has started. */
void surus_flags_watch(void);
/* In a worker, before its first request: saves the flags of a descriptor. */
void surus_flags_save(int fd);
/* At the end of a request: restores the flags, if a request may have changed them. */
void surus_flags_restore(void);

#endif
