/* What the parts of surus-php share. One process is either the template or one of the workers that it forks; both are
 * single-threaded, so the state below is plain globals. */
#ifndef SURUS_H
#define SURUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "scoreboard.h"

/* Descriptors that surus hands to the template. */
enum {
	SURUS_FD_CONTROL = 3,    /* SOCK_SEQPACKET: what the template tells surus and the reverse */
	SURUS_FD_INBOX = 4,      /* SOCK_SEQPACKET: events; read by all workers */
	SURUS_FD_SCOREBOARD = 5, /* shared memory */
	SURUS_FD_SETTINGS = 6,   /* NUL-terminated settings, read once */
};

/* --- settings.c: how to run, as surus said it --- */

struct surus_settings {
	uint32_t workers;
	uint32_t requests;   /* request ids are 1..requests-1 */
	uint64_t max_events; /* a worker retires after so many; 0 means never */
	uint64_t max_memory; /* resident bytes beyond which a worker retires; 0 means never */
	char *user;          /* name of the workers' user; NULL means: stay who we are */
	uid_t uid;
	gid_t gid;
	char *ini_file;      /* php.ini, or NULL to search */
	char *ini_entries;   /* lines of php.ini that override the file */
	char **environment;  /* NAME=value of the workers, NULL-terminated */
	bool clear_env;      /* workers begin with `environment` alone */
};
extern struct surus_settings surus_settings;

/* Reads the settings; on an error says what is wrong on stderr and returns false. */
bool surus_settings_read(int fd);

/* --- event.c: one event, decoded --- */

struct surus_var {
	const char *name; /* not NUL-terminated */
	uint32_t name_len;
	uint32_t value_len;
	char *value; /* NUL-terminated */
};

enum { SURUS_MAX_VARS = 1024, SURUS_MESSAGE_MAX = 256 * 1024 };

struct surus_event {
	uint16_t id;         /* FastCGI request id; 0 when there is no event */
	uint64_t deadline;   /* CLOCK_MONOTONIC in microseconds; 0 means none */
	uint64_t body_len;
	uint64_t body_read;
	const char *body;    /* the body, when it came in the message */
	int body_fd;         /* the body, when it came as a file; else -1 */
	uint32_t var_count;
	struct surus_var vars[SURUS_MAX_VARS];
};

/* Receives one message from the inbox into `event`, which borrows a static buffer until the next call.
 * 1: received. 0: the inbox is closed, no event will come. -1: interrupted by a signal. -2: malformed, said on stderr. */
int surus_event_receive(struct surus_event *event);
/* The value of a CGI variable, or NULL. */
char *surus_event_var(const struct surus_event *event, const char *name, size_t name_len);
#define SURUS_VAR(event, literal) surus_event_var(event, literal, sizeof(literal) - 1)
/* Reads on in the body; returns the number of bytes, 0 at its end. */
size_t surus_event_read_body(struct surus_event *event, char *buffer, size_t count);
void surus_event_close(struct surus_event *event);

/* --- outbox.c: what a worker says to surus --- */

enum surus_outcome {
	SURUS_COMPLETE = 0,  /* FCGI_REQUEST_COMPLETE */
	SURUS_NOT_BEGUN = 2, /* FCGI_OVERLOADED: dropped before any PHP ran, because nobody waits for it */
};

void surus_outbox_open(int fd);
/* Begins the answer to request `id`. */
void surus_outbox_begin(uint16_t id);
/* Appends to the response. False: it could not be sent, and the client counts as gone. */
bool surus_outbox_write(const char *data, size_t len);
/* Sends what has been collected. */
bool surus_outbox_flush(void);
/* Ends the response but not the event: the client has its answer, PHP goes on. */
bool surus_outbox_finish(void);
/* Ends the event, and the response if it has not ended. */
void surus_outbox_end(enum surus_outcome outcome, int exit_status);
/* Sends one log message, of any length; complete lines. */
void surus_outbox_log(const char *message, size_t len);
/* Sends header lines as an informational (103) response. */
bool surus_outbox_hints(const char *headers, size_t len);
/* Has surus closed its end? */
bool surus_outbox_hung_up(void);

/* --- sapi.c: PHP's side --- */

extern struct surus_event surus_event;
extern bool surus_in_worker;

/* PHP's module startup. False: PHP has said why on stderr. */
bool surus_php_startup(const char *program);
void surus_php_shutdown(void);
/* Serves surus_event completely: request startup, script, request shutdown, end of the event. */
void surus_php_serve(void);
/* To be called in a forked worker before its first event. */
void surus_php_after_fork(void);
/* Has the client of the event in our hands gone? */
bool surus_client_gone(void);

/* --- user_ini.c: .user.ini files --- */

void surus_user_ini_activate(const char *script, const char *root);

/* --- functions.c: functions that PHP code sees --- */

struct _zend_module_entry;
extern struct _zend_module_entry surus_module_entry;

/* --- stop.c: the end of an event that takes too long --- */

/* Installs the handler of the stop signal; once per process, before PHP starts. */
void surus_stop_install(void);
/* Hooks into the virtual machine; after PHP has started. */
void surus_stop_hook(void);
/* Asked to end the event in our hands? */
bool surus_stop_requested(void);

/* --- template.c, worker.c --- */

extern struct surus_line *surus_line; /* this worker's line */
extern _Atomic uint8_t *surus_gone;   /* one byte per request id */

/* The template's life: starts PHP, forks workers, replaces them. Returns the process's exit status. */
int surus_template_run(const char *program);
/* A worker's life; never returns. `index` is its line in the scoreboard. */
_Noreturn void surus_worker_run(uint32_t index, int outbox, int log);

/* Why a worker ended by itself: its exit status. */
enum {
	SURUS_EXIT_INBOX_CLOSED = 0,
	SURUS_EXIT_MAX_EVENTS = 100,
	SURUS_EXIT_MAX_MEMORY = 101,
	SURUS_EXIT_SETUP = 102,   /* could not become a worker; said on stderr */
	SURUS_EXIT_STOPPED = 103, /* asked to end an event while it was sending */
};

/* CLOCK_MONOTONIC in microseconds. */
uint64_t surus_now(void);
void surus_set_state(enum surus_state state);

#endif
