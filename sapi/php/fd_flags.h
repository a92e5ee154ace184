/* Status flags (O_NONBLOCK, for one) of what a worker and its boot have open: they are the
 * kernel's, and put back where an event may have */
#ifndef SURUS_PHP_FD_FLAGS_H
#define SURUS_PHP_FD_FLAGS_H

/* Watches over functions that change them; when PHP has started. */
void surus_flags_watch(void);
/* In a worker, before its first event: an event may change those of this descriptor. */
void surus_flags_note(int fd);
/* At the end of an event: puts them back, if one may have changed them. */
void surus_flags_put_back(void);

#endif
