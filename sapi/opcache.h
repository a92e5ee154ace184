#ifndef SURUS_OPCACHE_H
#define SURUS_OPCACHE_H

/* "absent": not loaded. "disabled": the ini file says so. "failed": it should work and does not. "on". To be asked once, when PHP has
 * started and nothing else has begun. */
const char *surus_opcache_state(void);

/* Why OPcache takes nothing new until a reload: "full"; "restart", which it never gets while booted processes hold pointers into it.
 * NULL when it is well, or nobody may ask. To be asked inside the booted script. */
const char *surus_opcache_stuck(void);

#endif
