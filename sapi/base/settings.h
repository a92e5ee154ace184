/* Reads how to run, as surus said it: NUL-terminated strings `key=value`. They come through a
 * descriptor and not on the */
#ifndef SURUS_BASE_SETTINGS_H
#define SURUS_BASE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Which engine runs. Its life of a process is chosen by the three questions below. */
enum surus_engine { SURUS_CLASSIC, SURUS_WORKER, SURUS_STANDBY, SURUS_FORK, SURUS_REWIND };

struct surus_settings {
	enum surus_engine engine;
	char *script;        /* what is booted; NULL on `classic` */
	char *document_root; /* DOCUMENT_ROOT while it boots */
	bool warms_up;       /* there are warm-ups to run */
	char **sockets;      /* peers whose connections the workers may share; NULL-terminated */
	bool verify_restore;       /* compare all memory after each rewind */
	/* an event with the header Surus-Leaks is answered with what the one before has left behind */
	bool tells_leaks;
	bool direct_binding;   /* PHP's library is to call itself directly */
	bool profiles;       /* what happens at the start is noted, and when */
	/* for how many microseconds a worker may look for its next event before it sleeps */
	uint32_t spin;
	uint32_t workers;
	uint32_t requests;   /* request ids are 1..requests-1 */
	uint64_t max_requests; /* a worker retires after so many; 0 means never */
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

#endif
