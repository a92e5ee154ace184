/* Refreshes the PCRE cache and the snapshot of the prototype process before it forks the next
 * worker. */
#ifndef SURUS_MASTER_PCRE_REFRESH_H
#define SURUS_MASTER_PCRE_REFRESH_H

/* In the prototype process: compiles the regular expressions of recent requests when they are
 * due. */
void surus_master_refresh_pcre_cache(void);

#endif
