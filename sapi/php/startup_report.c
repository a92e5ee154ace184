/* Writes the report on PHP's start: version, files read, state of OPcache, limits. */
#include "php/startup_report.h"

#include <php.h>
#include <SAPI.h>
#include <php_ini.h>

#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "php/boot_files.h"
#include "php/direct_binding.h"
#include "php/opcache.h"

/* main/php_ini.c; no header declares them */
extern PHPAPI char *php_ini_opened_path, *php_ini_scanned_files;

static char *at, *end;

static void add(const char *name, const char *value)
{
	int len = snprintf(at, (size_t)(end - at), "%s=%s\n", name, value ? value : "");
	at += len < end - at ? len : end - at - 1;
}

static void add_extensions(void)
{
	zend_module_entry *extension;

	at += snprintf(at, (size_t)(end - at), "extensions=");
	ZEND_HASH_FOREACH_PTR(&module_registry, extension) {
		/* Commas, because "Zend OPcache" is one name. */
		int len = snprintf(at, (size_t)(end - at), "%s,", extension->name);
		if (len >= end - at) {
			break;
		}
		at += len;
	} ZEND_HASH_FOREACH_END();
	if (end - at > 1) {
		*at++ = '\n';
	}
}

/* The additional ini files, separated by commas. PHP puts a line break after each comma. */
static void add_scanned(void)
{
	at += snprintf(at, (size_t)(end - at), "ini_scanned=");
	for (const char *c = php_ini_scanned_files; c && *c && end - at > 2; c++) {
		if (*c != '\n') {
			*at++ = *c;
		}
	}
	*at++ = '\n';
	*at = '\0';
}

/* Settings of the configuration that PHP does not know, separated by commas. */
static void add_unknown(void)
{
	const char *line = surus_settings.ini_entries;

	at += snprintf(at, (size_t)(end - at), "ini_unknown=");
	while (line && *line) {
		size_t len = strcspn(line, "\n"), name = strcspn(line, "=\n");
		bool loads = (name == 9 && memcmp(line, "extension", name) == 0) ||
		        (name == 14 && memcmp(line, "zend_extension", name) == 0);
		if (!loads && !zend_hash_str_exists(EG(ini_directives), line, name) &&
		        (size_t)(end - at) > name + 2) {
			memcpy(at, line, name);
			at += name;
			*at++ = ',';
		}
		line += len + (line[len] == '\n');
	}
	if (end - at > 1) {
		*at++ = '\n';
	}
}

size_t surus_startup_report(char *text, size_t size)
{
	static const char *settings[] = {
		"post_max_size", "upload_max_filesize", "memory_limit", "max_execution_time",
		"max_input_time",
		"display_errors", "upload_tmp_dir", "open_basedir", "opcache.preload",
		"opcache.jit_buffer_size",
		"opcache.validate_timestamps", "extension_dir", "user_ini.filename", "auto_prepend_file",
		"auto_append_file", "error_reporting", "date.timezone",
	};

	at = text;
	end = text + size;
	at += snprintf(at, size, "ready\n");
	add("php", PHP_VERSION);
	add("php_running", zend_get_constant_str("PHP_VERSION", sizeof("PHP_VERSION") - 1)
	                       ? Z_STRVAL_P(zend_get_constant_str("PHP_VERSION",
	                       sizeof("PHP_VERSION") - 1))
	                       : PHP_VERSION);
	add("ini_file", php_ini_opened_path);
	add_scanned();
	add("opcache", surus_opcache_state());
	add("direct_binding", surus_direct_binding_state());
	add("document_root", surus_settings.document_root);
	for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
		add(settings[i], zend_ini_string(settings[i], strlen(settings[i]), 0));
	}
	char seconds[24];
	snprintf(seconds, sizeof(seconds), "%ld", surus_boot_files_interval());
	add("revalidate", seconds);
	add_unknown();
	add_extensions();
	return (size_t)(at - text);
}
