/* The descriptors that Surus hands to the master process. */
#ifndef SURUS_BASE_DESCRIPTORS_H
#define SURUS_BASE_DESCRIPTORS_H

/* Descriptors that surus hands to the template. */
enum {
	SURUS_FD_CONTROL = 3,    /* SOCK_SEQPACKET: what the template tells surus and the reverse */
	SURUS_FD_INBOX = 4,      /* SOCK_SEQPACKET: events; read by all workers */
	SURUS_FD_SCOREBOARD = 5, /* shared memory */
	SURUS_FD_SETTINGS = 6,   /* NUL-terminated settings, read once */
	/* if there are warm-ups: messages as in the inbox, each behind its length in four bytes */
	SURUS_FD_WARMUP = 7,
	SURUS_FD_PROFILE = 8,    /* if a start is profiled: shared memory for what is noted of it */
	/* SOCK_SEQPACKET: each worker says once that it has come to wait for events */
	SURUS_FD_WAITING = 9,
	/* if the workers have a user: a pipe with the gid_t of all of its groups, found while PHP
	 * starts */
	SURUS_FD_GROUPS = 10,
	SURUS_FD_RINGS = 11,     /* shared memory, as rings.h has it */
	SURUS_FD_BELL = 12,      /* eventfd: tells surus that there is a letter */
};

#endif
