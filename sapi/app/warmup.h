/* Warm-ups: requests that are served before the first event, and answered to nobody. */
#ifndef SURUS_APP_WARMUP_H
#define SURUS_APP_WARMUP_H

#include <stdbool.h>

struct _zend_fcall_info;
struct _zend_fcall_info_cache;

/* Runs all that there are, but for those after which the application would answer otherwise, which
 * are named on stderr. False: one could not be served as an event is, said on stderr. */
bool surus_warmups_run(struct _zend_fcall_info *handler, struct _zend_fcall_info_cache *cache);

#endif
