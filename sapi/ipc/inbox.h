/* Receives events from the inbox. One message is one whole request, so nothing here waits for
 * more. */
#ifndef SURUS_IPC_INBOX_H
#define SURUS_IPC_INBOX_H

#include <stdbool.h>

#include "ipc/request_decode.h"

/* In the template, before anything is forked. False: no memory. */
bool surus_inbox_create(void);
/* In a script's child: it must not keep the inbox open. */
void surus_inbox_leave(void);
/* To be called in a worker before it receives the first. */
void surus_event_open(void);
/* Receives one message from the inbox into `event`, which borrows a static buffer until the next
 * call. 1: received. 2: received, but its body was lost for lack of descriptors, said on stderr. 0:
 * the inbox is closed, no event will come. -1: interrupted by a signal. -2: malformed, said on
 * stderr. */
int surus_event_receive(struct surus_event *event);

#endif
