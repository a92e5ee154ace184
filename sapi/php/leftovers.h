/* Frees what a request has left in PHP and its extensions, in a process that continues. */
#ifndef SURUS_PHP_LEFTOVERS_H
#define SURUS_PHP_LEFTOVERS_H

/* Saves the state at the end of the boot. */
void surus_leftovers_save(void);
/* At the beginning and at the end of a request's shutdown, in a process that continues. */
void surus_leftovers_stop_ticks(void);
void surus_leftovers_free(void);

#endif
