/* Tells whether the client of the current request has closed it, or Surus wants to stop the
 * request. */
#ifndef SURUS_IPC_REQUEST_STATUS_H
#define SURUS_IPC_REQUEST_STATUS_H

#include <stdbool.h>

/* Whether the client has closed the current request. */
bool surus_request_status_is_closed(void);
/* Whether Surus wants to stop the current request. */
bool surus_request_status_has_stop(void);
/* Writes this worker's line of the scoreboard again, in case a script has overwritten it. Safe in a
 * signal handler. */
void surus_request_status_rewrite(void);

#endif
