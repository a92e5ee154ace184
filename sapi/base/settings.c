/* Reads the settings that Surus passes to surus-php: NUL-terminated strings `key=value` from a
 * descriptor.
 *
 * A command line would show every user the passwords in an environment or an ini setting. */
#include "base/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/scoreboard_layout.h"

struct surus_settings surus_settings = {.workers = 1};

static char *read_all(int fd, size_t *len)
{
	size_t capacity = 4096;
	char *text = malloc(capacity);

	*len = 0;
	while (text) {
		ssize_t got = read(fd, text + *len, capacity - *len - 1);
		if (got < 0 && errno == EINTR) {
			continue;
		}
		if (got <= 0) {
			text[*len] = '\0';
			break;
		}
		*len += (size_t)got;
		if (*len + 1 == capacity) {
			capacity *= 2;
			text = realloc(text, capacity);
		}
	}
	return text;
}

/* Appends a line to the ini entries. */
static void add_ini(const char *line)
{
	size_t old = surus_settings.ini_entries ? strlen(surus_settings.ini_entries) : 0;
	size_t len = strlen(line);
	char *entries = realloc(surus_settings.ini_entries, old + len + 2);

	if (!entries) {
		abort();
	}
	memcpy(entries + old, line, len);
	memcpy(entries + old + len, "\n", 2);
	surus_settings.ini_entries = entries;
}

/* Appends to a NULL-terminated list. */
static void add(char ***list, char *value)
{
	size_t count = 0;

	while (*list && (*list)[count]) {
		count++;
	}
	*list = realloc(*list, (count + 2) * sizeof(char *));
	if (!*list) {
		abort();
	}
	(*list)[count] = value;
	(*list)[count + 1] = NULL;
}

static bool choose_engine(const char *name)
{
	static const char *names[] = {
		[SURUS_CLASSIC] = "classic", [SURUS_WORKER] = "worker", [SURUS_STANDBY] = "standby",
		[SURUS_FORK] = "fork",       [SURUS_REWIND] = "rewind",
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strcmp(name, names[i]) == 0) {
			surus_settings.engine = (enum surus_engine)i;
			return true;
		}
	}
	fprintf(stderr,
	        "surus-php: unknown engine: %s (surus and surus-php have different versions)\n",
	        name);
	return false;
}

bool surus_settings_read(int fd)
{
	size_t len;
	/* Never freed, because the settings point into it. */
	char *text = read_all(fd, &len);

	if (!text) {
		fprintf(stderr, "surus-php: cannot allocate the settings\n");
		return false;
	}
	close(fd);
	for (char *entry = text; entry < text + len; entry += strlen(entry) + 1) {
		char *value = strchr(entry, '=');
		size_t key_len = value ? (size_t)(value - entry) : 0;

		if (!value) {
			fprintf(stderr, "surus-php: setting without a value: %s\n", entry);
			return false;
		}
		value++;
#define IS(key) (key_len == sizeof(key) - 1 && memcmp(entry, key, sizeof(key) - 1) == 0)
		if (IS("engine")) {
			if (!choose_engine(value)) {
				return false;
			}
		} else if (IS("script")) {
			surus_settings.script = value;
		} else if (IS("code")) {
			surus_settings.code = value;
		} else if (IS("code_name")) {
			surus_settings.code_name = value;
		} else if (IS("document_root")) {
			surus_settings.document_root = value;
		} else if (IS("leaves_others")) {
			surus_settings.leaves_others = *value == '1';
		} else if (IS("project")) {
			surus_settings.project = value;
		} else if (IS("project_target")) {
			surus_settings.project_target = value;
		} else if (IS("warms_up")) {
			surus_settings.warms_up = *value == '1';
		} else if (IS("left_to_others")) {
			surus_settings.left_to_others = value;
		} else if (IS("learns")) {
			surus_settings.learns = *value == '1';
		} else if (IS("workers")) {
			surus_settings.workers = (uint32_t)strtoul(value, NULL, 10);
		} else if (IS("slots")) {
			surus_settings.slots = (uint32_t)strtoul(value, NULL, 10);
		} else if (IS("max_requests")) {
			surus_settings.max_requests = strtoull(value, NULL, 10);
		} else if (IS("max_memory")) {
			surus_settings.max_memory = strtoull(value, NULL, 10);
		} else if (IS("user")) {
			surus_settings.user = value;
		} else if (IS("uid")) {
			surus_settings.uid = (uid_t)strtoul(value, NULL, 10);
		} else if (IS("gid")) {
			surus_settings.gid = (gid_t)strtoul(value, NULL, 10);
		} else if (IS("group")) {
			add(&surus_settings.groups, value);
		} else if (IS("ini_file")) {
			surus_settings.ini_file = value;
		} else if (IS("clear_env")) {
			surus_settings.clear_env = *value == '1';
		} else if (IS("ini")) {
			add_ini(value);
		} else if (IS("direct_binding")) {
			surus_settings.direct_binding = *value == '1';
		} else if (IS("verify_restore")) {
			surus_settings.verify_restore = *value == '1';
		} else if (IS("reports_leaks")) {
			surus_settings.reports_leaks = *value == '1';
		} else if (IS("profiles")) {
			surus_settings.profiles = *value == '1';
		} else if (IS("traces_slow")) {
			surus_settings.traces_slow = *value == '1';
		} else if (IS("socket")) {
			add(&surus_settings.sockets, value);
		} else if (IS("env")) {
			add(&surus_settings.environment, value);
		} else {
			fprintf(stderr,
			        "surus-php: unknown setting: %s (surus and surus-php have different "
			        "versions)\n", entry);
			return false;
		}
#undef IS
	}
	if (surus_engine_boots_app()) {
		/* A restart of OPcache would free memory that booted processes use. OPcache waits for them
		 * as it waits for requests; without this setting it would kill them after a while
		 * (kill_all_lockers in ext/opcache/ZendAccelerator.c). */
		add_ini("opcache.force_restart_timeout=0");
	}
	return true;
}
