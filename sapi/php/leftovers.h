/* Frees what an event has left with PHP and its extensions, where the process goes on as it is: PHP
 * frees */
#ifndef SURUS_PHP_LEFTOVERS_H
#define SURUS_PHP_LEFTOVERS_H

/* Notes what there is now, at the end of the boot. */
void surus_leftovers_note(void);
/* When an event begins to end, where the process goes on as it is; and at the end of that. */
void surus_leftovers_stop_ticks(void);
void surus_leftovers_free(void);

#endif
