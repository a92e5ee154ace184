/* Reseeds random generators after a fork and after each rewind. */
#ifndef SURUS_PHP_RANDOM_SEED_H
#define SURUS_PHP_RANDOM_SEED_H

#include <stdbool.h>

/* In the master process, before the first fork. False: no memory. */
bool surus_random_create(void);
/* In a script's child: discards the worker's unused random bytes. */
void surus_random_discard(void);
/* When PHP has started: hooks the generators of GMP and libuuid. */
void surus_random_install(void);
/* At the end of the boot: resets generators for every fork and finds the engine objects of the
 * boot. */
void surus_random_boot_end(void);
/* In a fork and after each rewind: reseeds all generators. */
void surus_random_reseed(void);

#endif
