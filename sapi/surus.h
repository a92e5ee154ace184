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
	SURUS_FD_WARMUP = 7,     /* if there are warm-ups: messages as in the inbox, each behind its length in four bytes */
	SURUS_FD_PROFILE = 8,    /* if a start is profiled: shared memory for what is noted of it */
	SURUS_FD_WAITING = 9,    /* SOCK_SEQPACKET: each worker says once that it has come to wait for events */
	SURUS_FD_GROUPS = 10,    /* if the workers have a user: a pipe with the gid_t of all of its groups, found while PHP starts */
	SURUS_FD_RINGS = 11,     /* shared memory, as rings.h has it */
	SURUS_FD_BELL = 12,      /* eventfd: tells surus that there is a letter */
};

/* --- settings.c: how to run, as surus said it --- */

/* Which engine runs. Its life of a process is chosen by the three questions below. */
enum surus_engine { SURUS_CLASSIC, SURUS_WORKER, SURUS_STANDBY, SURUS_FORK, SURUS_REWIND };

struct surus_settings {
	enum surus_engine engine;
	char *script;        /* what is booted; NULL on `classic` */
	char *document_root; /* DOCUMENT_ROOT while it boots */
	bool warms_up;       /* there are warm-ups to run */
	char **sockets;      /* peers whose connections the workers may share; NULL-terminated */
	bool paranoid;       /* compare all memory after each rewind */
	bool tells_leaks;    /* an event with the header Surus-Leaks is answered with what the one before has left behind */
	bool direct_calls;   /* PHP's library is to call itself directly */
	bool profiles;       /* what happens at the start is noted, and when */
	uint32_t spin;       /* for how many microseconds a worker may look for its next event before it sleeps */
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

/* Does a script run once, ahead of the events that it serves? */
static inline bool surus_boots(void)
{
	return surus_settings.engine != SURUS_CLASSIC;
}

/* Does it run in the template, so that the workers are forked booted? */
static inline bool surus_boots_in_template(void)
{
	return surus_settings.engine == SURUS_FORK || surus_settings.engine == SURUS_REWIND;
}

/* Does a process serve one event and end? */
static inline bool surus_serves_one(void)
{
	return surus_settings.engine == SURUS_STANDBY || surus_settings.engine == SURUS_FORK;
}

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
	uint32_t tag;        /* the lower half of its ticket */
	uint64_t ticket;     /* once this worker has claimed it (scoreboard.h); 0 before */
	uint64_t deadline;   /* CLOCK_MONOTONIC in microseconds; 0 means none */
	uint64_t body_len;
	uint64_t body_read;
	const char *body;    /* the body, when it came in the message */
	int body_fd;         /* the body, when it came as a file; else -1 */
	bool is_one_of_many; /* surus has others in hand, and not because they take long */
	uint32_t var_count;
	struct surus_var vars[SURUS_MAX_VARS];
};

/* To be called in a worker before it receives the first. */
void surus_event_open(void);
/* Receives one message from the inbox into `event`, which borrows a static buffer until the next call.
 * 1: received. 2: received, but its body was lost for lack of descriptors, said on stderr. 0: the inbox is closed, no event will come.
 * -1: interrupted by a signal. -2: malformed, said on stderr. */
int surus_event_receive(struct surus_event *event);
/* Decodes the message of `len` bytes that lies in surus_self->message. False: malformed, said on stderr. */
bool surus_event_decode(struct surus_event *event, size_t len);
/* The value of a CGI variable, or NULL. */
char *surus_event_var(const struct surus_event *event, const char *name, size_t name_len);
#define SURUS_VAR(event, literal) surus_event_var(event, literal, sizeof(literal) - 1)
/* Reads on in the body; returns the number of bytes, 0 at its end. */
size_t surus_event_read_body(struct surus_event *event, char *buffer, size_t count);
void surus_event_close(struct surus_event *event);

/* --- self.c: what belongs to this process alone --- */

enum { SURUS_OUTBOX_CAPACITY = 32 * 1024 };

/* Has a script forked this process, and from which? */
enum surus_child { SURUS_NO_CHILD = 0, SURUS_CHILD_OF_WORKER, SURUS_CHILD_OF_TEMPLATE };

/* A rewound process gets all its memory back as it was when its application had booted, but for this: who it is, what it
 * holds, what it has counted. It lies in a mapping of its own, which is never put back. */
struct surus_self {
	struct surus_line *line; /* our line of the scoreboard; the template's leads nowhere, and a script's child's too */
	struct surus_line nowhere;
	/* What our line says, for ourselves: others can write to the line. */
	enum surus_state state;
	uint64_t since;
	uint32_t place;          /* which of the workers we are */
	pid_t pid;               /* and as which process */
	uint64_t taken;          /* events taken from the inbox */
	uint64_t taken_at;       /* CLOCK_MONOTONIC in microseconds: when the last one was */
	uint64_t served;         /* those of them that somebody waited for */
	bool forks_workers;      /* what is forked now is our doing, and not a script's */
	enum surus_child child;
	int exit_status;         /* with which this worker ends, once that is decided */
	int statm;               /* /proc/self/statm */
	int inbox;               /* tells of events in the inbox (epoll); -1 where that cannot be had */
	unsigned crowd;          /* how often there was more than one event at a time, lately */
	bool may_wait_in_turn;   /* nobody has given us another scheduling policy than the usual one */
	bool waits_in_turn;
	unsigned spin_pause;     /* events for which it is not looked the next time that others want the CPU */
	unsigned spin_pause_left; /* and of the last time */
	uint64_t usual_wait;     /* for an event, in microseconds: most are shorter */
	bool letters_are_ours;   /* all that is in our place's outbox */
	bool had_socket;         /* the last event came by the socket though it was not waited for there */
	uint64_t looked_at_socket; /* when, in microseconds of CLOCK_MONOTONIC */
	bool said;               /* surus knows that this worker waits for events */
	int log;                 /* what we write to stdout and stderr goes here, once we speak for ourselves */
	struct surus_event event;
	/* One byte more than a message may have: the last value gets its NUL there. */
	unsigned char message[SURUS_MESSAGE_MAX + 1];
	struct {
		int fd;
		bool *is_ours;    /* in memory that every fork finds empty, also one that libc does not know of */
		uint16_t request;
		bool response_ended;
		bool has_spoken;  /* of this event, by the socket */
		uint64_t ticket;  /* of this event */
		bool ticket_said; /* surus has it, or it is on its way */
		bool discards;    /* a warm-up, or a script's child: nobody is there to hear the answer */
		size_t collected; /* bytes of content behind the first header */
		/* The TICKET record, the header of the STDOUT record that is being collected, its content, and the END_REQUEST behind it. */
		unsigned char buffer[SURUS_OUTBOX_CAPACITY + 64];
	} outbox;
	struct {
		int64_t seconds; /* of CPU time, for which the timer was set that runs on from event to event; 0: none does */
		bool is_ours;    /* who is called when they are over */
		uint64_t set_at; /* in microseconds of CPU time of this process */
		uint64_t began;  /* when the event in our hands has */
		uint64_t others; /* of threads that have ended */
	} limit;
	struct {
		volatile unsigned char gate; /* the kernel reads it with each call: may it be made without a word? */
		bool is_on, watched, made, forbidden;
		unsigned pause, pause_left; /* events that are not watched, after one that has made calls */
	} calls;
	/* random.c: bytes that nobody has had, and how many. */
	size_t random_left;
	unsigned char random[8192];
};
extern struct surus_self *surus_self;

/* Maps surus_self; in the template, before anything else. */
bool surus_self_create(void);

/* Around system calls of our own amid an event, which change nothing that would be put back (calls.c). */
static inline unsigned char surus_calls_are_ours(void)
{
	unsigned char before = surus_self->calls.gate;

	surus_self->calls.gate = 0;
	return before;
}

static inline void surus_calls_are_scripts(unsigned char before)
{
	surus_self->calls.gate = before;
}

/* --- outbox.c: what a worker says to surus --- */

enum surus_outcome {
	SURUS_COMPLETE = 0,  /* FCGI_REQUEST_COMPLETE */
	SURUS_NOT_BEGUN = 2, /* FCGI_OVERLOADED: dropped before any PHP ran, because nobody waits for it or this worker cannot have it */
};

/* In the template. False: said on stderr. */
bool surus_outbox_prepare(void);
void surus_outbox_open(int fd);
/* In a script's child: from here on there is none. */
void surus_outbox_leave(void);
/* While on, what is said goes nowhere: a warm-up has no client. */
void surus_outbox_discard(bool on);
/* Begins the answer to the event in our hands. */
void surus_outbox_begin(const struct surus_event *event);
/* Appends to the response. False: it could not be sent, and the client counts as gone. */
bool surus_outbox_write(const char *data, size_t len);
/* Sends what has been collected. */
bool surus_outbox_flush(void);
/* Ends the response but not the event: the client has its answer, PHP goes on. */
bool surus_outbox_finish(void);
/* Ends the event, and the response if it has not ended. That it was not begun for want of a descriptor is said by the
 * socket, which no other process can write to: surus then gives the request to another worker. */
void surus_outbox_end(enum surus_outcome outcome, int exit_status);
/* Has the response ended, or the event? */
bool surus_outbox_response_ended(void);
/* Sends one log message, of any length; complete lines. */
void surus_outbox_log(const char *message, size_t len);
/* Sends header lines as an informational (103) response. */
bool surus_outbox_hints(const char *headers, size_t len);
/* Has surus closed its end? */
bool surus_outbox_hung_up(void);

/* --- child.c: processes that scripts fork --- */

/* In the template, once: from here on what forks, and is not said to be a worker, is cut off. */
bool surus_child_watch(void);
/* The script has ended in a process that it has forked: ends PHP's request, and the process with PHP's exit status. */
_Noreturn void surus_child_end(void);
/* The same when PHP's request has ended. */
_Noreturn void surus_child_exit(void);

/* --- sapi.c: PHP's side --- */

/* PHP's module startup. False: PHP has said why on stderr. */
bool surus_php_startup(const char *program);
void surus_php_shutdown(void);
/* Serves the event in our hands completely: request startup, script, request shutdown, end of the event. */
void surus_php_serve(void);
/* To be called in a forked worker before its first event. */
void surus_php_after_fork(void);
/* How many bytes of bodies this process has written. */
uint64_t surus_php_written(void);
/* Tells PHP what is asked: fills SG(request_info) from the event in our hands. */
void surus_php_fill_request_info(void);
/* Has the client of the event in our hands gone? */
bool surus_client_gone(void);

/* --- abort.c: the end of a script whose client has gone --- */

/* Begins an event, whose client is there. */
void surus_abort_begin(void);
/* To be called when something is written to a client that has gone. Returns where the script may go on, or ends it by leaving through
 * an exception. May not return. */
void surus_abort(void);

/* --- variables.c: an event's variables as PHP has them --- */

struct _zval_struct;
/* While PHP starts: makes strings for good of the names that nearly every event has. */
void surus_variables_intern(void);
/* When PHP has started. */
void surus_variables_start(void);
/* Fills $_SERVER. */
void surus_variables_register_server(struct _zval_struct *array);
/* Puts the process's environment into `array`, and nothing of an event. */
void surus_variables_import_environment(struct _zval_struct *array);

/* --- boot.c: the script that runs once, ahead of the events --- */

/* Runs the script, which calls one of the functions of serve.c and so serves events until there are none. Returns the
 * process's exit status. */
int surus_boot_run(void);
/* The script has come to serve. True: here, where events are to be taken. False: there will be none. */
bool surus_boot_done(void);

/* In the template: learns from the events that there have been, when it is time. */
void surus_boot_learn(void);

/* --- serve.c: how a booted script comes to its events --- */

/* Registers the functions for that. */
bool surus_serve_register(int type);
/* Has the script called one of them? */
bool surus_serve_called(void);
/* To be called when the script has ended, `normally` unless by exit() or an error. Where its rest has
 * served an event, ends that, and may not return. */
void surus_serve_script_ended(bool normally);
/* To be called when the script has ended, before PHP's request shutdown. */
void surus_serve_before_shutdown(void);

/* --- handle.c: the life of one event in a process whose application has booted --- */

struct _zend_fcall_info;
struct _zend_fcall_info_cache;
/* Makes the event in our hands PHP's request. */
void surus_handle_begin(void);
/* Runs what is to be run before and after each script, and between the two calls the handler. False: a
 * fatal error has ended it. */
bool surus_handle_call(struct _zend_fcall_info *handler, struct _zend_fcall_info_cache *cache);
/* Ends the event where the process goes on as it is; where it does not, surus_isolated_end does. */
void surus_handle_end(void);
/* Does code of the script run for an event: its handler, or what it has registered for the end? */
bool surus_handle_runs(void);
/* Runs what is to be run before each script, where the rest of the script serves the event. False: the
 * event ends here. */
bool surus_handle_prepend(void);
/* Ends an exception as PHP does at the end of a script. False: there was one that no handler has taken,
 * and what would come next in the script's place does not run; an exit() is one, too. */
bool surus_handle_exception(void);

/* --- auto_files.c: auto_prepend_file and auto_append_file --- */

/* Before the boot, which is no request: keeps PHP from running them there. */
void surus_auto_files_take(void);
/* May they run for every request of this engine? False: said on stderr why not. */
bool surus_auto_files_are_repeatable(void);
/* Runs it, if there is one. False: the event ends here. */
bool surus_auto_prepend(void);
void surus_auto_append(void);
/* At the end of an event, where the process goes on as it is: destroys what the files have made. May end
 * in a fatal error. */
void surus_auto_files_end(void);
struct _zend_op_array;
/* NULL: an exception says why. */
struct _zend_op_array *surus_auto_compile(const char *path);
void surus_auto_destroy(struct _zend_op_array *code);

/* --- auto_once.c: what such a file does that takes effect once in a process --- */

/* Can nothing of that be seen in these files, each of which may be NULL? False: said on stderr. */
bool surus_auto_once_none(const char *prepended, const char *appended);
/* Around the run of a file: notes what it does. */
void surus_auto_once_begin(const char *path);
void surus_auto_once_end(void);
/* At the end of an event: undoes what can be undone. */
void surus_auto_once_undo(void);
/* Has a file done something that cannot be undone, so that this process must not run it again? */
bool surus_auto_once_spent(void);

/* --- limit.c: max_execution_time of events --- */

struct rusage;
/* In a worker that is rewound, before the mark. */
void surus_limit_prepare(void);
/* Before an event: so much CPU time has been used. */
void surus_limit_note(int who, const struct rusage *usage);
/* After one, as long as it is known whether it had threads: what those have used is not the next one's. */
void surus_limit_note_threads(void);
/* From here on the event's time counts, if it has a limit. */
void surus_limit_begin(void);
/* From here on it does not. EG(timeout_seconds) becomes no time at all, and so shows whether one is set again. */
enum { SURUS_NO_LIMIT = -1 };
void surus_limit_end(void);

/* --- superglobals.c: $_GET and its kin in a process whose application has booted --- */

/* Notes what the boot has put into them, at its end. */
void surus_superglobals_note(void);
/* Makes them those of the event in our hands. */
void surus_superglobals_renew(void);

/* --- extensions.c: extensions that begin and end with each event --- */

/* At the end of the boot. */
void surus_extensions_find(void);
void surus_extensions_begin(void);
void surus_extensions_end(void);

/* --- url_rewriter.c --- */

/* Behind the output of an event: ends what session.use_trans_sid has begun. */
void surus_url_rewriter_end(void);

/* --- error_header.c --- */

/* When a script has ended, before the functions that run at its end. */
void surus_error_header(void);

/* --- warmup.c: warm-ups --- */

/* Runs all that there are, but for those after which the application would answer otherwise, which are
 * named on stderr. False: one could not be served as an event is, said on stderr. */
bool surus_warmups_run(struct _zend_fcall_info *handler, struct _zend_fcall_info_cache *cache);

/* --- ours.c: what an event has made, and the boot has not --- */

struct _zend_module_entry;
/* Runs the request shutdown of an extension, if there is one and it has one. */
void surus_shut_down(struct _zend_module_entry *extension);
/* Notes what there is now, at the end of the boot. */
void surus_ours_note(void);
struct _zend_object;
/* Has the boot made this object? */
bool surus_ours_is_boots(struct _zend_object *object);
/* Ends the event in our hands as PHP ends a request, for what the request has made: what the boot has made stays alive. */
void surus_isolated_end(void);

/* --- regex.c: regular expressions that events have had compiled --- */

/* In the template, before anything is forked. */
bool surus_regex_start(void);
/* In the template: what is compiled by now, those that it forks begin with. */
void surus_regex_booted(void);
/* At the end of an event: notes those that it has had compiled. */
void surus_regex_note(void);
/* Is it time that the template compiles those that have come again? */
bool surus_regex_is_due(void);
/* In a worker: shall it end, so that it is, or so that another has those that the template has compiled since? */
bool surus_regex_leaves(void);
/* In the template: has a child try them. False: that is under way, so it is to be asked again before the next worker is forked. */
bool surus_regex_try(void);
/* In a worker: closes what the template reads the child's words from. */
void surus_regex_leave_trial(void);
/* In the template: a child has ended, which may be that one. */
void surus_regex_reaped(pid_t pid);
/* In the template, after that: compiles those that are fit. */
void surus_regex_compile(void);

/* --- body.c: the body of an event as PHP reads it --- */

/* When PHP has started: has it read bodies without a file of its own. */
void surus_body_install(void);
/* At the end of an event, where the process goes on as it is: closes its streams, which PHP leaves to the
 * end of its request. */
void surus_body_close(void);

/* --- boot_time.c: times of the boot that requests would see --- */

/* In the template, before anything is forked. */
bool surus_boot_time_start(void);
/* When the request of the boot has started. */
void surus_boot_time_begin(void);
/* At the end of the boot, once for all workers: says on stderr what keeps the time. */
void surus_boot_time_look(void);

/* --- leftovers.c: what PHP frees at the end of its request --- */

/* Notes what there is now, at the end of the boot. */
void surus_leftovers_note(void);
/* When an event begins to end, where the process goes on as it is; and at the end of that. */
void surus_leftovers_stop_ticks(void);
void surus_leftovers_free(void);

/* --- wrappers.c: stream wrappers on `worker` --- */

struct _php_stream_wrapper;
struct _zend_resource;
/* Has a script registered it? */
bool surus_wrapper_is_scripts(const struct _php_stream_wrapper *wrapper);
/* Is this the resource of such a one? */
bool surus_wrapper_is_resource(const struct _zend_resource *resource);
/* At the end of the boot, and of an event. */
void surus_wrappers_note(void);
void surus_wrappers_renew(void);

/* --- archives.c: archives that events of `worker` have read --- */

/* At the end of the boot, and of an event. */
void surus_archives_note(void);
void surus_archives_close(void);

/* --- get_resources.c: get_resources() on `worker` --- */

/* At the end of the boot, behind surus_wrappers_note(). */
void surus_get_resources_install(void);

/* --- form.c: forms that PHP does not read by itself --- */

/* Reads the form of the event in our hands, if its body is one with parts and has not been read. */
bool surus_form_read(struct _zval_struct *fields, struct _zval_struct *files);

/* --- user_ini.c: .user.ini files --- */

void surus_user_ini_activate(const char *script, const char *root);

/* --- functions.c: functions that PHP code sees --- */

struct _zend_module_entry;
extern struct _zend_module_entry surus_module_entry;

/* --- frankenphp.c: functions of FrankenPHP --- */

bool surus_frankenphp_register(int type);

/* --- stop.c: the end of an event that takes too long --- */

/* Installs the handler of the stop signal; once per process, before PHP starts. */
void surus_stop_install(void);
/* Hooks into the virtual machine; after PHP has started. */
void surus_stop_hook(void);
/* Asked to end the event in our hands? */
bool surus_stop_requested(void);
/* In a script's child: its alarms are its own. */
void surus_stop_leave(void);

/* --- signals.c: signals of the boot --- */

/* In the template, before it forks: notes what the boot has blocked and handles, and keeps it from the template's own life. */
void surus_signals_keep(void);
/* In a worker: has it from here on. */
void surus_signals_take(void);
/* After an event: do some wait that are blocked? */
bool surus_signals_wait(void);
/* While memory is put back nothing may be called that writes to it. Ends with the signal mask of before. True: that has been changed. */
bool surus_signals_hold(void);

/* --- template.c, worker.c --- */

extern _Atomic uint64_t *surus_tickets; /* one per request id (scoreboard.h) */

/* The template's life: starts PHP, forks workers, replaces them. Returns the process's exit status. */
int surus_template_run(const char *program);
/* Says that PHP is ready, then forks workers and replaces those that end. True: we are such a worker, forked booted. False: there
 * is nothing more to do. */
bool surus_template_serve(void);
/* In a worker: does another have an event in its hands? */
bool surus_template_others_work(void);
/* Becomes a worker in a process that has just been forked: descriptors, user, environment. */
void surus_worker_become(int outbox, int log);
/* From here on stdout and stderr are this worker's. Until it has booted they are the template's, which surus quotes when a boot
 * fails. */
void surus_worker_speak(void);
/* Waits for an event that somebody waits for and takes it into surus_self->event. False: this worker's life is over. */
bool surus_worker_take(void);
/* Ends a booted worker before its first event; where that is the first of all, the boot has failed. */
_Noreturn void surus_worker_cannot_begin(const char *why);
/* A worker's life; never returns. */
_Noreturn void surus_worker_run(void);
/* Becomes the configured user, for good, and gets the workers' environment. False: said on stderr. */
bool surus_worker_disguise(void);
/* Reads who the workers' user is with, before any is forked. False: it has been said why. */
bool surus_worker_read_groups(void);

/* Why a worker ended by itself: its exit status. */
enum {
	SURUS_EXIT_INBOX_CLOSED = 0,
	SURUS_EXIT_MAX_EVENTS = 100,
	SURUS_EXIT_MAX_MEMORY = 101,
	SURUS_EXIT_SETUP = 102,   /* could not become a worker; said on stderr */
	SURUS_EXIT_STOPPED = 103, /* asked to end an event while it was sending */
	SURUS_EXIT_SERVED = 104,  /* has served the one event that it was there for */
	SURUS_EXIT_BOOT = 105,    /* its script did not boot; said on stderr */
	SURUS_EXIT_FAILED = 106,  /* a fatal error has ended its script */
	SURUS_EXIT_REPLACED = 107, /* could not be rewound completely; said on stderr */
	SURUS_EXIT_DIFFERS = 108,  /* rewound memory is not what it was; said on stderr */
	SURUS_EXIT_RENEWED = 109,  /* so that one takes its place that knows what the template has learnt */
	/* As SURUS_EXIT_REPLACED, by what the event had done; the words are in rewind.c. */
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
	SURUS_EXIT_DESCRIPTORS = 120, /* had none left for an event's body, or hardly any at all; said on stderr */
	SURUS_EXIT_ENDED = 121, /* its script has left the loop that serves */
};

/* --- profile.c: how a start goes --- */

/* Opens the notes when they are wanted; the process has begun at `started`. False: said on stderr. */
bool surus_profile_open(uint64_t started);
void surus_profile_extensions(void);
void surus_profile_started(void);
/* Notes that something begins or ends. */
void surus_profile_mark(const char *what);

/* CLOCK_MONOTONIC in microseconds. */
uint64_t surus_now(void);
void surus_set_state(enum surus_state state);
/* Writes into our line again what we are doing. May be called by a signal handler. */
void surus_say_again(void);

#endif
