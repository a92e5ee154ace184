/* Drops privileges: becomes the configured user with its groups and environment. */
#include "worker/privileges.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/procfs.h"
#include "base/settings.h"

/* The groups of the user as numbers. NULL: no memory, or Surus has sent none. */
static gid_t *groups(size_t *count)
{
	gid_t *found = NULL;

	*count = 0;
	errno = ENODATA;
	for (char **group = surus_settings.groups; group && *group; group++) {
		gid_t *grown = realloc(found, (*count + 1) * sizeof(*found));

		if (!grown) {
			free(found);
			return NULL;
		}
		found = grown;
		found[(*count)++] = (gid_t)strtoul(*group, NULL, 10);
	}
	return found;
}

bool surus_drop_privileges(void)
{
	size_t count;

	if (!surus_settings.user) {
		return true;
	}
	gid_t *supplementary = groups(&count);
	if (!supplementary) {
		fprintf(stderr, "surus-php: cannot read the supplementary groups of user %s (engine.user): "
		        "%m\n", surus_settings.user);
		return false;
	}
	const char *failed = setgroups(count, supplementary) != 0 ? "setgroups"
	                     : setgid(surus_settings.gid) != 0    ? "setgid"
	                                                          : NULL;
	free(supplementary);
	/* If that fails, `rewind` works as `fork`, and says so. */
	if (!failed) {
		surus_procfs_guard(surus_settings.gid);
	}
	if (!failed && setuid(surus_settings.uid) != 0) {
		failed = "setuid";
	}
	if (failed) {
		fprintf(stderr,
		        "surus-php: cannot become user %s (engine.user): %s: %m; start Surus as that user, "
		        "or as root with the capabilities CAP_SETUID, CAP_SETGID and CAP_KILL\n",
		        surus_settings.user, failed);
		return false;
	}
	if (surus_settings.uid != 0 && setuid(0) == 0) {
		fprintf(stderr, "surus-php: user %s (engine.user) can still become root\n",
		        surus_settings.user);
		return false;
	}
	/* Surus passes no configured variable when it starts a program as root. Libraries read some
	 * while PHP starts, such as OPENSSL_CONF. */
	for (char **pair = surus_settings.environment; pair && *pair; pair++) {
		putenv(*pair);
	}
	return true;
}

/* As php-fpm with clear_env: the configured variables, and USER and HOME of the user. */
void surus_set_environment(void)
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
