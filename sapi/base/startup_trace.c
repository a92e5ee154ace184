/* Traces a start for `surus lambda profile`: its phases, and the PHP files that it compiles or
 * finds in OPcache.
 *
 * It writes to memory shared with Surus, without system calls, so that it hardly changes what it
 * measures. */
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

static struct trace {
	_Atomic uint64_t used; /* bytes of `text`; more than its size if lines were lost */
	char text[]; /* lines, in the order of their ends */
} *trace;

static size_t capacity;
static zend_op_array *(*compile)(zend_file_handle *file, int type); /* PHP's compiler */
/* PHP's compiler, or OPcache around it */
static zend_op_array *(*compile_or_find)(zend_file_handle *file, int type);
static bool compiled;

__attribute__((format(printf, 1, 2))) static void record(const char *format, ...)
{
	char line[4200];
	va_list arguments;

	va_start(arguments, format);
	int len = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (len <= 0 || len >= (int)sizeof(line)) {
		return;
	}
	uint64_t at = atomic_fetch_add(&trace->used, (uint64_t)len);
	/* A script may have written any number there. */
	if (at <= capacity && (uint64_t)len <= capacity - at) {
		memcpy(trace->text + at, line, (size_t)len);
	}
}

void surus_startup_trace_mark(const char *what)
{
	if (trace) {
		record("mark %llu %s\n", (unsigned long long)surus_clock_now(), what);
	}
}

bool surus_startup_trace_open(uint64_t started)
{
	struct stat file;

	if (!surus_settings.profiles) {
		return true;
	}
	if (fstat(SURUS_FD_PROFILE, &file) != 0 || file.st_size < 4096) {
		fprintf(stderr, "surus-php: cannot read the size of the trace: %m\n");
		return false;
	}
	trace = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, SURUS_FD_PROFILE,
	        0);
	close(SURUS_FD_PROFILE);
	if (trace == MAP_FAILED) {
		trace = NULL;
		fprintf(stderr, "surus-php: cannot map the trace: %m\n");
		return false;
	}
	capacity = (size_t)file.st_size - sizeof(*trace);
	record("mark %llu main\n", (unsigned long long)started);
	return true;
}

static zend_op_array *compile_and_record(zend_file_handle *file, int type)
{
	compiled = true;
	return compile(file, type);
}

static zend_op_array *record_file(zend_file_handle *file, int type)
{
	uint64_t start = surus_clock_now();
	compiled = false;
	zend_op_array *result = compile_or_find(file, type);
	zend_string *path = file->opened_path ? file->opened_path : file->filename;
	record("file %llu %llu %d %s\n", (unsigned long long)start,
	        (unsigned long long)surus_clock_now(), compiled, path ? ZSTR_VAL(path) : "");
	return result;
}

/* Called while extensions start, so that OPcache's hook wraps this one: a file for which OPcache
 * does not call it was found in the cache. */
void surus_startup_trace_extensions(void)
{
	if (trace) {
		compile = zend_compile_file;
		zend_compile_file = compile_and_record;
	}
}

/* Called when all extensions have started. */
void surus_startup_trace_started(void)
{
	if (trace) {
		compile_or_find = zend_compile_file;
		zend_compile_file = record_file;
		surus_startup_trace_mark("started");
	}
}
