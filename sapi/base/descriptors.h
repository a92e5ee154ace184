/* The descriptors that Surus hands to the master process. */
#ifndef SURUS_BASE_DESCRIPTORS_H
#define SURUS_BASE_DESCRIPTORS_H

enum {
	SURUS_FD_CONTROL = 3, /* SOCK_SEQPACKET: messages between the master process and Surus */
	SURUS_FD_INBOX = 4, /* SOCK_SEQPACKET: the request socket, read by all workers */
	SURUS_FD_SCOREBOARD = 5, /* shared memory */
	SURUS_FD_SETTINGS = 6, /* NUL-terminated settings, read once */
	/* if there are warm-ups: messages as in the request socket, each after its length in four
	 * bytes */
	SURUS_FD_WARMUP = 7,
	SURUS_FD_PROFILE = 8, /* if the start is profiled: shared memory for the trace */
	/* SOCK_SEQPACKET: each worker sends one message when it first waits for requests */
	SURUS_FD_WAITING = 9,
	SURUS_FD_RINGS = 10, /* shared memory with the layout of rings.h */
	SURUS_FD_DOORBELL = 11, /* eventfd: tells Surus that a response ring has a new frame */
};

#endif
