/* The life of one event in a process whose application has booted. */
#ifndef SURUS_APP_REQUEST_H
#define SURUS_APP_REQUEST_H

#include <stdbool.h>

struct _zend_fcall_info;
struct _zend_fcall_info_cache;

/* Makes the event in our hands PHP's request. */
void surus_handle_begin(void);
/* Runs what is to be run before and after each script, and between the two calls the handler.
 * False: a fatal error has ended it. */
bool surus_handle_call(struct _zend_fcall_info *handler, struct _zend_fcall_info_cache *cache);
/* Ends the event where the process goes on as it is; where it does not, surus_isolated_end does. */
void surus_handle_end(void);
/* Runs what is to be run before each script, where the rest of the script serves the event. False:
 * the event ends here. */
bool surus_handle_prepend(void);

#endif
