/* How a start goes, for `surus lambda profile`: when its parts begin, and which PHP files it
 * compiles or finds in OPcache. Noted in memory that is shared with surus, without a system call,
 * so that what is measured is hardly disturbed. */
#include "base/startup_trace.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <php.h>
#include <zend_compile.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"

static struct notes {
	_Atomic uint64_t used; /* bytes of `text`; more than it has when some were lost */
	char text[];           /* lines, in the order of their ends */
} *notes;

static size_t capacity;
static zend_op_array *(*compile)(zend_file_handle *file, int type);       /* what really compiles */
/* that, or OPcache around it */
static zend_op_array *(*compile_or_find)(zend_file_handle *file, int type);
static bool compiled;

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
	char line[4200];
	va_list arguments;

	va_start(arguments, format);
	int len = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (len <= 0 || len >= (int)sizeof(line)) {
		return;
	}
	uint64_t at = atomic_fetch_add(&notes->used, (uint64_t)len);
	/* A script may have written any number there. */
	if (at <= capacity && (uint64_t)len <= capacity - at) {
		memcpy(notes->text + at, line, (size_t)len);
	}
}

void surus_profile_mark(const char *what)
{
	if (notes) {
		note("mark %llu %s\n", (unsigned long long)surus_now(), what);
	}
}

bool surus_profile_open(uint64_t started)
{
	struct stat file;

	if (!surus_settings.profiles) {
		return true;
	}
	if (fstat(SURUS_FD_PROFILE, &file) != 0 || file.st_size < 4096) {
		fprintf(stderr, "surus-php: no memory for the profile: %m\n");
		return false;
	}
	notes = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, SURUS_FD_PROFILE,
	        0);
	close(SURUS_FD_PROFILE);
	if (notes == MAP_FAILED) {
		notes = NULL;
		fprintf(stderr, "surus-php: cannot map the profile: %m\n");
		return false;
	}
	capacity = (size_t)file.st_size - sizeof(*notes);
	note("mark %llu main\n", (unsigned long long)started);
	return true;
}

static zend_op_array *compile_and_tell(zend_file_handle *file, int type)
{
	compiled = true;
	return compile(file, type);
}

static zend_op_array *note_file(zend_file_handle *file, int type)
{
	uint64_t start = surus_now();
	compiled = false;
	zend_op_array *result = compile_or_find(file, type);
	zend_string *path = file->opened_path ? file->opened_path : file->filename;
	note("file %llu %llu %d %s\n", (unsigned long long)start, (unsigned long long)surus_now(),
	        compiled,
	     path ? ZSTR_VAL(path) : "");
	return result;
}

/* While extensions start, so that OPcache's own comes around it: what it does not hand on, it has
 * found. */
void surus_profile_extensions(void)
{
	if (notes) {
		compile = zend_compile_file;
		zend_compile_file = compile_and_tell;
	}
}

/* When they have. */
void surus_profile_started(void)
{
	if (notes) {
		compile_or_find = zend_compile_file;
		zend_compile_file = note_file;
		surus_profile_mark("started");
	}
}
