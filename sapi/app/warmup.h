/* Runs warm-ups: requests that are served before the first client's request, without a response. */
#ifndef SURUS_APP_WARMUP_H
#define SURUS_APP_WARMUP_H

#include <stdbool.h>
#include <stddef.h>

struct _zend_fcall_info;
struct _zend_fcall_info_cache;

/* Runs all warm-ups except those after which the application would respond differently, which are
 * reported on stderr. False: one failed; said on stderr. */
bool surus_warmups_run(struct _zend_fcall_info *handler, struct _zend_fcall_info_cache *cache);

/* Whether this process runs one now. */
bool surus_warmup_runs(void);

/* Keeps a line of the boot script for surus_warmups_created(), during a warm-up. */
void surus_warmups_report(const char *created, size_t len);
/* What the boot script has created ahead. */
const char *surus_warmups_created(void);

/* The numbers of the warm-ups that were left out, from 1, separated by commas. */
const char *surus_warmups_left_out(void);

#endif
