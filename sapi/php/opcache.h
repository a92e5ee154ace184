/* Asks OPcache for its state, and sets its time of the request. */
#ifndef SURUS_PHP_OPCACHE_H
#define SURUS_PHP_OPCACHE_H

/* "absent": not loaded. "disabled": by the ini file. "failed": it should work and does not. "on".
 * "file cache only": each process reads compiled files from disk (opcache.file_cache_only). Call
 * once, when PHP has started and nothing runs yet. */
const char *surus_opcache_state(void);

/* Why OPcache accepts nothing new until a reload: "full"; "restart", which cannot happen while
 * booted processes use its memory. NULL if it works or must not be asked. Call within the booted
 * script. */
const char *surus_opcache_blocked(void);

/* After PHP's start-up has failed: reports if opcache.preload may be the cause. PHP itself reports
 * it with log_errors only. */
void surus_opcache_explain_preload(void);

/* Called when the boot's PHP request has started, and at the start of each request. OPcache reads
 * the time when PHP's request starts, and would use the boot's time for all requests. It would
 * never check a file for changes (opcache.revalidate_freq), and never cache a file newer than the
 * boot (opcache.file_update_protection). */
void surus_opcache_boot_begin(void);
void surus_opcache_request_begin(void);

#endif
