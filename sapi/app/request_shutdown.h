/* Ends a request as PHP does, but keeps what the boot has made. */
#ifndef SURUS_APP_REQUEST_SHUTDOWN_H
#define SURUS_APP_REQUEST_SHUTDOWN_H

/* Records the objects and resources of the boot; at its end. */
void surus_request_shutdown_save(void);
/* Ends the current request: destroys what it has made and keeps what the boot has made. */
void surus_request_shutdown(void);

#endif
