/* Drops privileges: becomes the configured user with its groups and environment. */
#include "worker/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"

/* The groups of the workers' user. Looking them up takes longer than everything else that sets up a
 * worker. */
static gid_t *groups;

static size_t group_count;

bool surus_read_groups(void)
{
	size_t len = 0, room = 0;
	ssize_t got;

	if (!surus_settings.user) {
		return true;
	}
	for (;;) {
		if (len == room) {
			room = room ? room * 2 : 64 * sizeof(*groups);
			groups = realloc(groups, room);
			if (!groups) {
				fprintf(stderr, "surus-php: cannot allocate the groups of %s: %m\n",
				        surus_settings.user);
				return false;
			}
		}
		got = read(SURUS_FD_GROUPS, (char *)groups + len, room - len);
		if (got == 0) {
			break;
		}
		if (got > 0) {
			len += (size_t)got;
		} else if (errno != EINTR) {
			fprintf(stderr, "surus-php: cannot read the groups of %s: %m\n", surus_settings.user);
			return false;
		}
	}
	close(SURUS_FD_GROUPS);
	group_count = len / sizeof(*groups);
	if (group_count == 0) {
		fprintf(stderr, "surus-php: the groups of user %s (engine.user) cannot be found\n",
		        surus_settings.user);
	}
	return group_count > 0;
}

static bool drop_privileges(void)
{
	if (!surus_settings.user) {
		return true;
	}
	const char *failed = setgid(surus_settings.gid) != 0         ? "setgid"
	                     : setgroups(group_count, groups) != 0 ? "setgroups"
	                     : setuid(surus_settings.uid) != 0     ? "setuid"
	                                                           : NULL;
	if (failed) {
		fprintf(stderr,
		        "surus-php: cannot become user %s (engine.user): %s: %m; start Surus as that user, "
		        "or as root with the capabilities CAP_SETUID and CAP_SETGID\n",
		        surus_settings.user, failed);
	}
	return !failed;
}

/* As php-fpm with clear_env: the configured variables, and USER and HOME of the user. */
static void set_environment(void)
{
	struct passwd *user = getpwuid(getuid());

	if (surus_settings.clear_env) {
		clearenv();
	}
	if (user && user->pw_name && user->pw_dir) {
		setenv("USER", user->pw_name, 1);
		setenv("HOME", user->pw_dir, 1);
	}
	for (char **pair = surus_settings.environment; pair && *pair; pair++) {
		putenv(*pair);
	}
}

bool surus_drop_privileges(void)
{
	if (!drop_privileges()) {
		return false;
	}
	set_environment();
	return true;
}
