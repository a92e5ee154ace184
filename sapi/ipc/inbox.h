/* Receives requests from the request ring and the request socket. One message is one request. */
#ifndef SURUS_IPC_INBOX_H
#define SURUS_IPC_INBOX_H

#include <stdbool.h>

#include "ipc/request_decode.h"

/* In the master process, before the first fork. False: no memory. */
bool surus_inbox_create(void);
/* In a script's child, which must not keep the request socket open. */
void surus_inbox_leave(void);
/* In a worker, before it receives its first request. */
void surus_inbox_open(void);
/* Receives one message into `request`, which borrows a static buffer until the next call.
 *
 * 1: received. 2: received, but the body is lost because no descriptor was free; said on stderr.
 * 0: the socket is closed, no request will come. -1: interrupted by a signal, or released.
 * -2: malformed; said on stderr. */
int surus_inbox_receive(struct surus_request *request);
/* In the master process: undoes that each message in the request socket signals processes, which a
 * script has set. False: none has. */
bool surus_inbox_reset_signals(void);

#endif
