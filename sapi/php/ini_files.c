/* Chooses the php.ini, and refuses a start that would leave out files that PHP's user cannot read.
 *
 * PHP silently continues without such a file, and so without `disable_functions`, for example. */
#include "php/ini_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <php_ini.h>
#include <php_scandir.h>

#include "base/settings.h"

/* main/php_ini.c; no header declares them */
extern PHPAPI char *php_ini_opened_path, *php_ini_scanned_path;

/* A path that the library was built with; the installed headers may be another build's. */
static const char *compiled_in(const char *name)
{
	zval *value = zend_get_constant_str(name, strlen(name));

	return value && Z_TYPE_P(value) == IS_STRING ? Z_STRVAL_P(value) : "";
}

/* False, with the reason on stderr: the file exists and cannot be read. */
static bool is_readable(const char *file, const char *setting)
{
	if (access(file, R_OK) == 0 || (errno == ENOENT && !*setting)) {
		return true;
	}
	fprintf(stderr, "surus-php: cannot read %s%s: %m; PHP's user must be able to read it\n", file,
	        setting);
	return false;
}

/* Debian has a php.ini for each SAPI, and Surus uses php-fpm's; libphp would read the embed
 * SAPI's. */
bool surus_ini_choose(char **file)
{
	static char fpm_ini[] = "/etc/php/" SURUS_PHP_MINOR "/fpm/php.ini";

	if (surus_settings.ini_file) {
		*file = surus_settings.ini_file;
		return is_readable(*file, " (engine.ini_file)");
	}
	if (getenv("PHPRC")) {
		return true;
	}
	if (access(fpm_ini, F_OK) == 0) {
		*file = fpm_ini;
		setenv("PHP_INI_SCAN_DIR", "/etc/php/" SURUS_PHP_MINOR "/fpm/conf.d", 0);
	}
	/* Also fails if its directory cannot be entered: another php.ini would be read instead. */
	return is_readable(fpm_ini, "");
}

/* Checks the files that PHP finds in one directory. */
static bool check_directory(const char *directory)
{
	struct dirent **entries;
	int count = php_scandir(directory, &entries, NULL, php_alphasort);
	bool all = true;

	for (int i = 0; i < count; i++) {
		const char *name = entries[i]->d_name, *end = strrchr(name, '.');
		char path[MAXPATHLEN];

		if (end && strcmp(end, ".ini") == 0) {
			snprintf(path, sizeof(path), "%s/%s", directory, name);
			all &= is_readable(path, "");
		}
		free(entries[i]);
	}
	if (count >= 0) {
		free(entries);
	}
	return all && (count >= 0 || is_readable(directory, ""));
}

bool surus_ini_check(void)
{
	const char *named = getenv("PHPRC");
	char path[MAXPATHLEN];
	bool all = true;

	if (!php_ini_opened_path) {
		const char *directory = named ? named : compiled_in("PHP_CONFIG_FILE_PATH");

		snprintf(path, sizeof(path), "%s/php.ini", directory);
		all = is_readable(path, "") && (!named || is_readable(named, ""));
	}
	/* An empty name is PHP's own directory (php_init_config in main/php_ini.c). */
	for (const char *at = php_ini_scanned_path; at;) {
		size_t len = strcspn(at, ":");

		snprintf(path, sizeof(path), "%.*s", (int)len, at);
		all &= check_directory(len ? path : compiled_in("PHP_CONFIG_FILE_SCAN_DIR"));
		at = at[len] ? at + len + 1 : NULL;
	}
	return all;
}
