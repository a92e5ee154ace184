#ifndef SURUS_OPCACHE_H
#define SURUS_OPCACHE_H

/* "absent": not loaded. "disabled": the ini file says so. "failed": it should work and does not.
 * "on". "file cache only": each process reads compiled files from disk (opcache.file_cache_only).
 * To be asked once, when PHP has started and nothing else has begun. */
const char *surus_opcache_state(void);

/* Why OPcache takes nothing new until a reload: "full"; "restart", which it never gets while booted
 * processes hold pointers into it. NULL when it is well, or nobody may ask. To be asked inside the
 * booted script. */
const char *surus_opcache_stuck(void);

/* When PHP's start-up has failed: says whether opcache.preload may be why. PHP itself says so with
 * log_errors alone. */
void surus_opcache_explain_preload(void);

/* To be called when the request of the boot has started, and at the beginning of every event.
 * OPcache learns the time when a request starts, and takes it for all that the boot is followed by:
 * it would never look at a changed file again (opcache.revalidate_freq), and never keep one that is
 * younger than the boot (opcache.file_update_protection), but compile it for every event. */
void surus_opcache_booting(void);
void surus_opcache_begin(void);

#endif
