/* Shares compiled regular expressions between workers of `fork` and `rewind`, whose PCRE cache does
 * not survive a request. */
#ifndef SURUS_PHP_PCRE_CACHE_H
#define SURUS_PHP_PCRE_CACHE_H

#include <stdbool.h>
#include <sys/types.h>

/* In the master process, before the first fork. */
bool surus_pcre_cache_create(void);
/* In the prototype process: records the current cache, with which workers forked from here on
 * start. */
void surus_pcre_cache_save(void);
/* At the end of a request: records the expressions that it has compiled. */
void surus_pcre_cache_record(void);
/* Whether the prototype process should compile recurring expressions now. */
bool surus_pcre_cache_is_due(void);
/* In a worker: whether it must exit, so that the prototype process refreshes its cache or a new
 * worker gets the refreshed one. */
bool surus_pcre_cache_replaces_worker(void);
/* In the prototype process: tries the expressions in a child. False: the trial still runs; call
 * again before the next fork. */
bool surus_pcre_cache_try(void);
/* In a worker: closes the pipe from the trial's child. */
void surus_pcre_cache_close_trial(void);
/* In the prototype process: a child has exited, possibly the trial's. */
void surus_pcre_cache_reaped(pid_t pid);
/* In the prototype process, after a trial: compiles the expressions that passed it. */
void surus_pcre_cache_compile(void);

#endif
