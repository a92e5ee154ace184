/* Generators of random numbers. Memory that is put back gives the same numbers again; so after each
 * rewind every generator of this */
#ifndef SURUS_PHP_RANDOM_SEED_H
#define SURUS_PHP_RANDOM_SEED_H

#include <stdbool.h>

/* In the template, before anything is forked. False: no memory. */
bool surus_random_create(void);
/* In a script's child: what has been drawn ahead belongs to the worker. */
void surus_random_forget(void);
/* When PHP has started: watches over the generators of GMP and libuuid. */
void surus_random_prepare(void);
/* At the end of the boot: has generators start anew in every fork, and notes those that the boot
 * has made. */
void surus_random_note(void);
/* In a fork, and after each rewind: sees to it that no generator gives what it gave before. */
void surus_random_renew(void);

#endif
