/* Records which files the boot has read or missed, and finds out whether they have changed since.
 *
 * On `fork` and `rewind` the master process has booted, so the records are its own. On `worker` and
 * `standby` the first worker that has booted leaves them in shared memory, where every worker could
 * change them. So the master process checks each record before it uses it, and a forged one makes
 * it ask for the state of a file, nothing else. That may take long: a path can lead through many
 * links, and its server may be slow. So a check is cut into slices, and its time is limited. */
#include "php/boot_files.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <php.h>
#include <fopen_wrappers.h>
#include <php_ini.h>

#include "base/clock.h"
#include "base/persistent_map.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"

enum { CAPACITY = 8 << 20, ALIGNMENT = 8 };
/* The signature of a file that does not exist, and of one that no state of the file equals. */
enum { ABSENT = 0, OUTDATED = 1, FIRST_SIGNATURE };
enum { EMPTY, WRITING, WRITTEN };
/* microseconds of a slice, and of a check; Surus waits for 5 seconds */
enum { SLICE = 10000, LONGEST_CHECK = 3000000 };
/* How many workers of a pool exit because files have changed while they booted: some files change
 * all the time. */
enum { MAX_OUTDATED = 32 };

struct record {
	uint64_t signature;
	uint32_t use; /* enum surus_file_use */
	uint32_t len; /* of the path, with its NUL */
	char path[];
};

static struct records {
	_Atomic uint32_t state;
	_Atomic uint32_t used; /* bytes */
	_Alignas(ALIGNMENT) char bytes[CAPACITY];
} *records;

/* The change that the application has reported by surus_boot_outdated(). All processes share it. */
static struct reported {
	_Atomic uint64_t state; /* 0: nothing */
	_Atomic uint32_t outdated; /* workers that have exited because of it */
	char what[128];
} *reported;

/* While the boot runs: signature and use by path. */
struct entry {
	uint64_t signature;
	enum surus_file_use use;
};

static HashTable entries;
static bool is_recording;
static struct timespec created; /* before OPcache has compiled anything */

static void *map(size_t size)
{
	void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE,
	        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return shared == MAP_FAILED ? NULL : shared;
}

bool surus_boot_files_create(void)
{
	clock_gettime(CLOCK_REALTIME, &created);
	/* Unused pages take no memory. */
	records = surus_engine_boots_in_prototype() ? surus_persistent_map(sizeof(*records))
	        : map(sizeof(*records));
	reported = map(sizeof(*reported));
	return records && reported;
}

long surus_boot_files_interval(void)
{
	static const char name[] = "opcache.validate_timestamps", often[] = "opcache.revalidate_freq";
	zend_long seconds = 2; /* as OPcache's default; PHP may run without it */

	if (!surus_engine_boots_app()) {
		return 0;
	}
	if (zend_hash_str_exists(EG(ini_directives), name, sizeof(name) - 1)) {
		if (!zend_ini_long(name, sizeof(name) - 1, 0)) {
			return 0;
		}
		seconds = zend_ini_long(often, sizeof(often) - 1, 0);
	}
	/* A check costs one system call per file, which is too much for each request. */
	return seconds < 1 ? 1 : (long)seconds;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * UINT64_C(0xff51afd7ed558ccd);
	return hash ^ hash >> 32;
}

static uint64_t signature_of(const struct stat *file, enum surus_file_use use)
{
	uint64_t hash = mix(1, file->st_mode & S_IFMT);

	if (use == SURUS_FILE_READ) {
		hash = mix(hash, (uint64_t)file->st_dev);
		hash = mix(hash, (uint64_t)file->st_ino);
		hash = mix(hash, (uint64_t)file->st_size);
		hash = mix(hash, (uint64_t)file->st_mtim.tv_sec);
		hash = mix(hash, (uint64_t)file->st_mtim.tv_nsec);
	}
	return hash < FIRST_SIGNATURE ? FIRST_SIGNATURE : hash;
}

/* False: stat() failed for another reason than a missing file, for example on a network file system
 * that does not answer. */
static bool sign(const char *path, enum surus_file_use use, uint64_t *signature)
{
	struct stat file;

	if (stat(path, &file) == 0) {
		*signature = signature_of(&file, use);
		return true;
	}
	*signature = ABSENT;
	return errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
}

static void free_entry(zval *value)
{
	free(Z_PTR_P(value));
}

bool surus_boot_files_are_recorded(void)
{
	return surus_settings.learns || surus_boot_files_interval() > 0;
}

void surus_boot_files_begin(void)
{
	if (!surus_boot_files_are_recorded()) {
		return;
	}
	zend_hash_init(&entries, 256, NULL, free_entry, true);
	is_recording = true;
}

/* The absolute path of a local file. False: a URL of another scheme, or a path in /proc, /sys or
 * /dev. */
static bool resolve(const char *name, char path[static MAXPATHLEN])
{
	if (strncasecmp(name, "file://", 7) == 0) {
		name += 7;
	}
	return *name && !strstr(name, "://") && expand_filepath(name, path) &&
	       strncmp(path, "/proc/", 6) != 0 && strncmp(path, "/sys/", 5) != 0 &&
	       strncmp(path, "/dev/", 5) != 0;
}

void surus_boot_files_save(const char *name, enum surus_file_use use, const struct stat *known)
{
	char path[MAXPATHLEN];
	struct entry entry = {.use = use};

	if (!is_recording || !resolve(name, path)) {
		return;
	}
	size_t len = strlen(path);
	const struct entry *before = zend_hash_str_find_ptr(&entries, path, len);
	/* The first state counts: the boot may have used it. */
	if (before && before->use >= use) {
		return;
	}
	if (known) {
		entry.signature = signature_of(known, use);
	} else if (!sign(path, use, &entry.signature)) {
		return;
	}
	zend_hash_str_update_mem(&entries, path, len, &entry, sizeof(entry));
}

void surus_boot_files_forget(const char *name)
{
	char path[MAXPATHLEN];

	if (!is_recording || !resolve(name, path)) {
		return;
	}
	size_t len = strlen(path);
	zend_hash_str_del(&entries, path, len);
	if (!surus_engine_boots_in_prototype()) {
		/* The boots of the other workers change it, too. */
		struct entry written = {.use = SURUS_FILE_WRITTEN};
		zend_hash_str_update_mem(&entries, path, len, &written, sizeof(written));
	}
}

/* False, and reports it: a file has changed since the boot has read it. The records do not show
 * that: they are those of the worker that has booted first. */
static bool check_own(void)
{
	zend_string *path;
	struct entry *entry;
	uint64_t now;

	ZEND_HASH_FOREACH_STR_KEY_PTR(&entries, path, entry) {
		if (entry->use != SURUS_FILE_WRITTEN && sign(ZSTR_VAL(path), entry->use, &now) &&
		    now != entry->signature) {
			surus_boot_files_report(ZSTR_VAL(path), ZSTR_LEN(path), (const char *)&now,
			        sizeof(now));
			/* A file that OPcache has compiled before is there for the next boot, too. */
			return entry->signature == OUTDATED;
		}
	} ZEND_HASH_FOREACH_END();
	return true;
}

/* Moves the entries to the records. */
static void publish(void)
{
	uint32_t empty = EMPTY, used = 0;
	zend_string *path;
	struct entry *entry;

	/* Another worker may have booted before. */
	if (!atomic_compare_exchange_strong(&records->state, &empty, WRITING)) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY_PTR(&entries, path, entry) {
		struct record *record = (struct record *)(records->bytes + used);
		size_t len = ZSTR_LEN(path) + 1;
		size_t size = (sizeof(*record) + len + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
		if (entry->use == SURUS_FILE_WRITTEN) {
			continue;
		}
		if (size > CAPACITY - used) {
			fprintf(stderr, "surus-php: the boot read more files than Surus can watch (8 MiB of "
			        "paths); changes of the others need `surus reload`\n");
			break;
		}
		record->signature = entry->signature;
		record->use = entry->use;
		record->len = (uint32_t)len;
		memcpy(record->path, ZSTR_VAL(path), len);
		used += (uint32_t)size;
	} ZEND_HASH_FOREACH_END();
	atomic_store(&records->used, used);
	atomic_store(&records->state, WRITTEN);
}

/* Notes a script that was not opened: OPcache had compiled it for another worker. If the file has
 * changed since OPcache began, that may have been an earlier version. */
static void save_cached(const char *path)
{
	struct stat file;
	struct entry *entry;

	if (zend_hash_str_exists(&entries, path, strlen(path)) || stat(path, &file) != 0) {
		return;
	}
	surus_boot_files_save(path, SURUS_FILE_READ, &file);
	entry = zend_hash_str_find_ptr(&entries, path, strlen(path));
	if (entry && (file.st_ctim.tv_sec > created.tv_sec ||
	        (file.st_ctim.tv_sec == created.tv_sec &&
	        file.st_ctim.tv_nsec >= created.tv_nsec))) {
		entry->signature = OUTDATED;
	}
}

bool surus_boot_files_end(void)
{
	zend_string *path;
	bool is_current;

	if (!is_recording) {
		return true;
	}
	ZEND_HASH_FOREACH_STR_KEY(&EG(included_files), path) {
		if (path && ZSTR_VAL(path)[0] == '/') {
			save_cached(ZSTR_VAL(path));
		}
	} ZEND_HASH_FOREACH_END();
	is_recording = false;
	is_current = surus_engine_boots_in_prototype() || check_own() ||
	             atomic_fetch_add(&reported->outdated, 1) >= MAX_OUTDATED;
	if (is_current) {
		publish();
	}
	zend_hash_destroy(&entries);
	return is_current;
}

void surus_boot_files_report(const char *what, size_t what_len, const char *state, size_t state_len)
{
	char text[sizeof(reported->what)] = {0};
	uint64_t hash = mix(zend_inline_hash_func(what, what_len),
	        zend_inline_hash_func(state, state_len));

	memcpy(text, what, what_len < sizeof(text) ? what_len : sizeof(text) - 1);
	memcpy(reported->what, text, sizeof(text));
	atomic_store(&reported->state, hash ? hash : 1);
}

/* What has changed: the name of the first change, and a number that differs for other changes. */
struct change {
	char what[PATH_MAX];
	uint64_t number; /* 0: nothing has changed */
};

static void add(struct change *change, const char *what, uint64_t state)
{
	if (change->number == 0) {
		snprintf(change->what, sizeof(change->what), "%s", what);
	}
	change->number = mix(mix(change->number, zend_inline_hash_func(what, strlen(what))), state);
	change->number += change->number == 0;
}

/* The running check. Only the master process uses it. */
static struct {
	struct change change;
	uint64_t end; /* when its time is over; 0: no check runs */
	uint32_t at, used; /* bytes of the records */
} running;

/* Copies the next record. False: there is none, or it is forged. */
static bool next_record(struct record *record, char path[static PATH_MAX])
{
	if (running.at > running.used || running.used - running.at <= sizeof(*record)) {
		return false;
	}
	memcpy(record, records->bytes + running.at, sizeof(*record));
	running.at += (uint32_t)sizeof(*record);
	if (record->len == 0 || record->len > PATH_MAX || record->len > running.used - running.at) {
		return false;
	}
	memcpy(path, records->bytes + running.at, record->len);
	path[record->len - 1] = '\0';
	running.at += (record->len + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	return true;
}

/* Checks files for a slice. False: there are more. */
static bool check_files(void)
{
	static bool reported;
	uint64_t now = surus_clock_now(), slice_end = now + SLICE;
	struct record record;
	char path[PATH_MAX];

	while (next_record(&record, path)) {
		enum surus_file_use use = record.use ? SURUS_FILE_READ : SURUS_FILE_SEEN;
		uint64_t signature;
		if (sign(path, use, &signature) && signature != record.signature) {
			add(&running.change, path, signature);
		}
		now = surus_clock_now();
		if (now >= running.end) {
			if (!reported) {
				fprintf(stderr, "surus-php: a check of the files of the boot takes longer than "
				        "%d seconds; a change of the last ones needs `surus reload`\n",
				        LONGEST_CHECK / 1000000);
				reported = true;
			}
			return true;
		}
		if (now >= slice_end) {
			return false;
		}
	}
	return true;
}

/* A deploy may exchange a link on the way to the project. */
static void check_link(struct change *change)
{
	char target[PATH_MAX];

	if (surus_settings.project && surus_settings.project_target &&
	    realpath(surus_settings.project, target) &&
	    strcmp(target, surus_settings.project_target) != 0) {
		add(change, surus_settings.project, zend_inline_hash_func(target, strlen(target)));
	}
}

static void check_reported_change(struct change *change)
{
	uint64_t state = atomic_load(&reported->state);
	char what[sizeof(reported->what)];

	if (state) {
		memcpy(what, reported->what, sizeof(what));
		what[sizeof(what) - 1] = '\0';
		add(change, what, state);
	}
}

void surus_boot_files_begin_check(void)
{
	uint32_t used = atomic_load(&records->used);
	bool is_complete = atomic_load(&records->state) == WRITTEN && used <= CAPACITY;

	memset(&running, 0, sizeof(running));
	running.used = is_complete ? used : 0;
	running.end = surus_clock_now() + LONGEST_CHECK;
	check_link(&running.change);
}

bool surus_boot_files_is_checking(void)
{
	return running.end != 0;
}

size_t surus_boot_files_check(char *answer, size_t size)
{
	if (!check_files()) {
		return 0;
	}
	running.end = 0;
	check_reported_change(&running.change);
	int len = running.change.number ? snprintf(answer, size, "changed %016llx %s",
	        (unsigned long long)running.change.number, running.change.what)
	        : snprintf(answer, size, "unchanged");
	return (size_t)len < size ? (size_t)len : size - 1;
}
