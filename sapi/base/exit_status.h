/* The exit statuses by which a worker tells Surus why it exited. The names are those of the metric
 * label (src/engines/workers/exit_reason.rs). */
#ifndef SURUS_BASE_EXIT_STATUS_H
#define SURUS_BASE_EXIT_STATUS_H

enum {
	SURUS_EXIT_DRAINED = 0,
	SURUS_EXIT_MAX_REQUESTS = 100,
	SURUS_EXIT_MAX_MEMORY = 101,
	SURUS_EXIT_SETUP_FAILED = 102, /* setup failed; the reason is on stderr */
	SURUS_EXIT_INTERRUPTED = 103, /* interrupted by Surus while it was sending */
	SURUS_EXIT_SINGLE_USE = 104, /* has served its only request */
	SURUS_EXIT_BOOT_FAILED = 105, /* its script did not boot; the reason is on stderr */
	SURUS_EXIT_FATAL_ERROR = 106, /* a fatal error ended its script */
	SURUS_EXIT_REPLACED = 107, /* could not be rewound completely; the reason is on stderr */
	/* restored memory differs from the checkpoint; the address is on stderr */
	SURUS_EXIT_VERIFY_FAILED = 108,
	/* makes room for a worker with the PCRE cache of the prototype process */
	SURUS_EXIT_PCRE_REFRESH = 109,
	/* As SURUS_EXIT_REPLACED, by cause; rewind/rewind.c maps the causes. */
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
	/* too few descriptors left, or none for a request's body; said on stderr */
	SURUS_EXIT_NO_DESCRIPTORS = 120,
	SURUS_EXIT_SCRIPT_RETURNED = 121, /* its script left the loop that serves requests */
	/* a script has changed the priority of its session; the master process says so */
	SURUS_EXIT_PRIORITY_CHANGED = 122,
	SURUS_EXIT_SCALED_DOWN = 123, /* Surus wants fewer workers */
	/* files changed while its script booted; its successor boots what is there now */
	SURUS_EXIT_BOOT_OUTDATED = 124,
};

#endif
