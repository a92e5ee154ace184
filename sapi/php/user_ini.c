/* Applies .user.ini files: settings per directory, cached for user_ini.cache_ttl seconds, as in
 * php-cgi and php-fpm. */
#include "php/user_ini.h"

#include <stdio.h>
#include <string.h>

#include <php.h>
#include <SAPI.h>
#include <php_ini.h>
#include <php_main.h>

#include "base/scoreboard_layout.h"
#include "ipc/request_decode.h"
#include "php/boot_files.h"

struct entry {
	time_t expires;
	HashTable settings;
};

static HashTable cache; /* directory with trailing slash -> struct entry */
static bool cache_ready;

/* Entries outlive requests, so they use malloc's memory. */
static void free_entry(zval *value)
{
	struct entry *entry = Z_PTR_P(value);
	zend_hash_destroy(&entry->settings);
	pefree(entry, 1);
}

static void free_setting(zval *value)
{
	if (Z_TYPE_P(value) == IS_STRING) {
		zend_string_release_ex(Z_STR_P(value), 1);
	} else if (Z_TYPE_P(value) == IS_ARRAY) {
		zend_hash_destroy(Z_ARRVAL_P(value));
		pefree(Z_ARR_P(value), 1);
	}
}

/* Reads the file of one directory. A boot depends on it, also if it does not exist, and PHP opens
 * it without the hooks of file_hooks.c. */
static void read_file(struct entry *entry, const char *directory)
{
	char path[MAXPATHLEN];
	int len = snprintf(path, sizeof(path), "%s/%s", directory, PG(user_ini_filename));

	if (len > 0 && (size_t)len < sizeof(path)) {
		/* Before PHP reads it: a change in between must be noticed. */
		surus_boot_files_save(path, SURUS_FILE_READ, NULL);
	}
	php_parse_user_ini_file(directory, PG(user_ini_filename), &entry->settings);
}

/* Reads the files of all directories from the document root to `directory`, or only of `directory`
 * if it lies elsewhere. */
static void scan(struct entry *entry, char *directory, const char *root, size_t root_len)
{
	zend_hash_clean(&entry->settings);
	if (strncmp(directory, root, root_len) == 0 && directory[root_len] == '/') {
		for (char *slash = directory + root_len; slash; slash = strchr(slash + 1, '/')) {
			*slash = '\0';
			read_file(entry, *directory ? directory : "/");
			*slash = '/';
		}
	} else {
		read_file(entry, directory);
	}
}

void surus_user_ini_activate(const char *script, const char *root)
{
	char directory[MAXPATHLEN];
	const char *slash = script ? strrchr(script, '/') : NULL;
	size_t len = slash ? (size_t)(slash - script) + 1 : 0;
	size_t root_len = root ? strlen(root) : 0;
	time_t now = (time_t)sapi_get_request_time();
	struct entry *entry;

	if (len == 0 || len >= sizeof(directory)) {
		return;
	}
	memcpy(directory, script, len);
	directory[len] = '\0';
	if (php_ini_has_per_host_config()) {
		char *host = SURUS_VAR(surus_request, "SERVER_NAME");
		if (host) {
			char *lower = zend_str_tolower_dup(host, strlen(host));
			php_ini_activate_per_host_config(lower, strlen(lower));
			efree(lower);
		}
	}
	if (php_ini_has_per_dir_config()) {
		php_ini_activate_per_dir_config(directory, len);
	}
	if (!PG(user_ini_filename) || !*PG(user_ini_filename)) {
		return;
	}
	if (!cache_ready) {
		zend_hash_init(&cache, 8, NULL, free_entry, 1);
		cache_ready = true;
	}
	entry = zend_hash_str_find_ptr(&cache, directory, len);
	if (!entry) {
		entry = pemalloc(sizeof(*entry), 1);
		entry->expires = 0;
		zend_hash_init(&entry->settings, 0, NULL, free_setting, 1);
		zend_hash_str_update_ptr(&cache, directory, len, entry);
	}
	if (now > entry->expires) {
		if (root_len > 0 && root[root_len - 1] == '/') {
			root_len--;
		}
		scan(entry, directory, root ? root : "", root_len);
		entry->expires = now + PG(user_ini_cache_ttl);
	}
	php_ini_activate_config(&entry->settings, PHP_INI_PERDIR, PHP_INI_STAGE_HTACCESS);
}
