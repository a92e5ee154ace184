/* Gives each worker its own copy of the boot's temporary files, which PHP programmers treat as
 * memory. If a request writes to one, the worker is replaced. */
#include "rewind/kernel/temp_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <php.h>
#include <php_memory_streams.h>

#include "base/procfs.h"
#include "base/scoreboard_layout.h"
#include "php/streams.h"

static HashTable tmpfiles; /* resources of tmpfile(), by number */
static unsigned char temporary[SURUS_DESCRIPTORS]; /* descriptors, as bits */
static zif_handler plain_tmpfile;

static ZEND_FUNCTION(surus_tmpfile)
{
	plain_tmpfile(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (Z_TYPE_P(return_value) == IS_RESOURCE) {
		zend_hash_index_add_empty_element(&tmpfiles, (zend_ulong)Z_RES_HANDLE_P(return_value));
	}
}

void surus_temp_file_watch(void)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("tmpfile"));

	if (function && function->type == ZEND_INTERNAL_FUNCTION) {
		zend_hash_init(&tmpfiles, 8, NULL, NULL, 1);
		plain_tmpfile = function->internal_function.handler;
		function->internal_function.handler = ZEND_FN(surus_tmpfile);
	}
}

/* Whether it is a file of tmpfile(), or of a php://temp that has outgrown memory. */
static bool is_phps(int fd)
{
	const php_stream *stream = surus_streams_find(fd);

	if (!stream) {
		return false;
	}
	return (stream->enclosing_stream && stream->enclosing_stream->ops == &php_stream_temp_ops) ||
	       zend_hash_index_exists(&tmpfiles, (zend_ulong)stream->res->handle);
}

void surus_temp_file_add(int fd, const struct stat *file)
{
	if (S_ISREG(file->st_mode) && (file->st_nlink == 0 || is_phps(fd))) {
		temporary[fd / 8] |= (unsigned char)(1 << fd % 8);
	}
}

bool surus_temp_file_is(int fd)
{
	return fd < SURUS_DESCRIPTORS * 8 && temporary[fd / 8] & 1 << fd % 8;
}

/* The modification time of an unwritten copy. */
static const struct timespec never[2];

int surus_temp_file_copy(int fd)
{
	char path[64];
	struct stat file;
	off_t at = 0;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int from = open(path, O_RDONLY | O_CLOEXEC);
	int own = memfd_create("surus-temporary", MFD_CLOEXEC);
	bool complete = from >= 0 && own >= 0 && fstat(from, &file) == 0;
	while (complete && at < file.st_size) {
		complete = sendfile(own, from, &at, (size_t)(file.st_size - at)) > 0;
	}
	complete = complete && fcntl(own, F_SETFL, fcntl(fd, F_GETFL)) == 0 &&
	        futimens(own, never) == 0;
	if (from >= 0) {
		close(from);
	}
	if (!complete && own >= 0) {
		close(own);
	}
	return complete ? own : -1;
}

bool surus_temp_file_is_written(const struct stat *file)
{
	return file->st_mtim.tv_sec != never[1].tv_sec || file->st_mtim.tv_nsec != never[1].tv_nsec;
}
