/* Runs one request in a process whose application has booted. */
#ifndef SURUS_APP_REQUEST_H
#define SURUS_APP_REQUEST_H

#include <stdbool.h>

struct _zend_fcall_info;
struct _zend_fcall_info_cache;

/* Makes the current request PHP's request. */
void surus_app_request_begin(void);
/* Runs auto_prepend_file, the handler and auto_append_file. False: a fatal error has ended the
 * request. */
bool surus_app_request_call(struct _zend_fcall_info *handler, struct _zend_fcall_info_cache *cache);
/* Ends the request in a process that continues as it is; otherwise surus_request_shutdown() does.
 * False: a shutdown function has called exit() or thrown, which skips those that follow. */
bool surus_app_request_end(void);
/* Runs auto_prepend_file, if the rest of the script serves the request. False: the request ends
 * here. */
bool surus_app_request_prepend(void);

#endif
