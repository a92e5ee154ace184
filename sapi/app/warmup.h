/* Runs warm-ups: requests that are served before the first client's request, without a response. */
#ifndef SURUS_APP_WARMUP_H
#define SURUS_APP_WARMUP_H

#include <stdbool.h>

struct _zend_fcall_info;
struct _zend_fcall_info_cache;

/* Runs all warm-ups except those after which the application would respond differently, which are
 * reported on stderr. False: one failed; said on stderr. */
bool surus_warmups_run(struct _zend_fcall_info *handler, struct _zend_fcall_info_cache *cache);
/* Whether this process logs what the boot script reports: no other one has run the warm-up. */
bool surus_warmup_is_first(void);

#endif
