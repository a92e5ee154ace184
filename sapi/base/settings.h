/* Reads the settings that Surus passes to surus-php. */
#ifndef SURUS_BASE_SETTINGS_H
#define SURUS_BASE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The engine. The three functions below say how it runs processes. */
enum surus_engine { SURUS_CLASSIC, SURUS_WORKER, SURUS_STANDBY, SURUS_FORK, SURUS_REWIND };

struct surus_settings {
	enum surus_engine engine;
	char *script; /* the script to boot; NULL on `classic` */
	/* A boot script of Surus, which runs in place of `script`; NULL: there is none. It is never a
	 * file, so that no user can change it and open_basedir need not allow it. */
	char *code;
	char *code_name; /* its name in messages */
	char *document_root; /* DOCUMENT_ROOT during the boot */
	bool leaves_others; /* no request for another script of the document root gets here */
	char *project; /* the application's directory as the user has named it; NULL: not given */
	char *project_target; /* where its links led when the boot was prepared */
	bool warms_up; /* there are warm-ups */
	char *left_to_others; /* for the report: which configured warm-ups are not asked for */
	bool learns; /* Surus compares boots, so it asks whether files have changed between them */
	char **sockets; /* peers whose connections the workers may share; NULL-terminated */
	bool verify_restore; /* compare all memory after each rewind */
	/* answer requests with the header Surus-Leaks with what the previous request left behind */
	bool reports_leaks;
	bool direct_binding; /* bind calls inside PHP's library directly */
	bool profiles; /* trace the start */
	bool traces_slow; /* Surus asks for backtraces of slow requests (php/slow_request.c) */
	uint32_t workers;
	uint32_t slots; /* for requests: 1 to slots-1 */
	uint64_t max_requests; /* requests after which a worker exits; 0: no limit */
	uint64_t max_memory; /* resident bytes beyond which a worker exits; 0: no limit */
	char *user; /* name of PHP's user; NULL: stay the current user */
	uid_t uid;
	gid_t gid;
	char **groups; /* numbers of all groups of the user; NULL-terminated */
	char *ini_file; /* php.ini; NULL: PHP searches for it */
	char *ini_entries; /* lines of php.ini that override the file */
	char **environment; /* NAME=value of the workers, NULL-terminated */
	bool clear_env; /* workers start with `environment` only */
};

extern struct surus_settings surus_settings;

/* Whether a script boots before requests are served. */
static inline bool surus_engine_boots_app(void)
{
	return surus_settings.engine != SURUS_CLASSIC;
}

/* Whether the script boots in the prototype process, which the workers are forked from. */
static inline bool surus_engine_boots_in_prototype(void)
{
	return surus_settings.engine == SURUS_FORK || surus_settings.engine == SURUS_REWIND;
}

/* Whether a process serves one request and exits. */
static inline bool surus_engine_serves_one(void)
{
	return surus_settings.engine == SURUS_STANDBY || surus_settings.engine == SURUS_FORK;
}

/* Reads the settings. False: the reason is on stderr. */
bool surus_settings_read(int fd);

#endif
