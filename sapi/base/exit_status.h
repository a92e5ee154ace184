/* The exit statuses of a worker, which tell Surus why it ended. */
#ifndef SURUS_BASE_EXIT_STATUS_H
#define SURUS_BASE_EXIT_STATUS_H

/* Why a worker ended by itself: its exit status. */
enum {
	SURUS_EXIT_INBOX_CLOSED = 0,
	SURUS_EXIT_MAX_REQUESTS = 100,
	SURUS_EXIT_MAX_MEMORY = 101,
	SURUS_EXIT_SETUP = 102,   /* could not become a worker; said on stderr */
	SURUS_EXIT_STOPPED = 103, /* asked to end an event while it was sending */
	SURUS_EXIT_SERVED = 104,  /* has served the one event that it was there for */
	SURUS_EXIT_BOOT = 105,    /* its script did not boot; said on stderr */
	SURUS_EXIT_FAILED = 106,  /* a fatal error has ended its script */
	SURUS_EXIT_REPLACED = 107, /* could not be rewound completely; said on stderr */
	SURUS_EXIT_DIFFERS = 108,  /* rewound memory is not what it was; said on stderr */
	/* so that one takes its place that knows what the template has learnt */
	SURUS_EXIT_RENEWED = 109,
	/* As SURUS_EXIT_REPLACED, by what the event had done; the words are in rewind/rewind.c. */
	SURUS_EXIT_REPLACED_SIGNALS = 110,
	SURUS_EXIT_REPLACED_PROCESS = 111,
	SURUS_EXIT_REPLACED_THREAD = 112,
	SURUS_EXIT_REPLACED_IDENTITY = 113,
	SURUS_EXIT_REPLACED_LIMITS = 114,
	SURUS_EXIT_REPLACED_NATIVE = 115,
	SURUS_EXIT_REPLACED_DESCRIPTOR = 116,
	SURUS_EXIT_REPLACED_DIRECTORY = 117,
	SURUS_EXIT_REPLACED_MAPPINGS = 118,
	SURUS_EXIT_REPLACED_MEMORY = 119,
	/* had none left for an event's body, or hardly any at all; said on stderr */
	SURUS_EXIT_DESCRIPTORS = 120,
	SURUS_EXIT_ENDED = 121, /* its script has left the loop that serves */
};

#endif
