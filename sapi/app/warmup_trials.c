/* Decides which warm-ups are tried in a fork first, and shares the results between workers.
 *
 * The prototype process tries each, because it rejects boots that leave connections open. On
 * `standby` and `worker`, boots may leave them open, and then nothing is tried: the fork and the
 * worker would write to the same connection or file. */
#include "app/warmup_trials.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <php.h>

#include "base/procfs.h"
#include "base/replace_fd.h"
#include "base/settings.h"
#include "rewind/kernel/boot_fds.h"
#include "rewind/kernel/temp_files.h"

enum { MOST = 4096 }; /* warm-ups with a shared result */
enum { UNKNOWN, FINE, LEFT_OUT };

static atomic_uchar *results; /* shared by the master process and the workers that boot */
static unsigned char before[SURUS_DESCRIPTORS]; /* open when the boot began */
static bool is_listed;

/* What the kernel keeps of an open file, which forks share. */
static struct {
	bool is_open;
	int flags;
	off_t offset; /* -1: it has none */
} files[SURUS_DESCRIPTORS * 8];

bool surus_warmup_trials_start(void)
{
	void *shared;

	if (!surus_settings.warms_up || surus_engine_boots_in_prototype()) {
		return true;
	}
	shared = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	results = shared == MAP_FAILED ? NULL : shared;
	return results;
}

void surus_warmup_trials_boot_begins(void)
{
	int last;

	if (results) {
		is_listed = surus_boot_fds_find_open(before, &last) && last < SURUS_DESCRIPTORS * 8;
	}
}

void surus_warmup_trials_boot_ended(void)
{
	if (results) {
		munmap(results, MOST);
		results = NULL;
	}
}

/* Whether writes to it, or locks, would be those of the worker, too. */
static bool is_shared(int fd)
{
	struct stat file;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fstat(fd, &file) != 0) {
		return false;
	}
	return !S_ISDIR(file.st_mode) &&
	       (!S_ISREG(file.st_mode) || (flags & O_ACCMODE) != O_RDONLY);
}

/* How many descriptors the boot has left that are neither directories nor files to read. A
 * connection to SQLite is a file that is open for writing. -1: unknown. */
static int count_opened(void)
{
	static unsigned char now[SURUS_DESCRIPTORS];
	int last, count = 0;

	if (!is_listed || !surus_boot_fds_find_open(now, &last) || last >= SURUS_DESCRIPTORS * 8) {
		return -1;
	}
	for (int fd = 3; fd <= last; fd++) {
		bool is_new = now[fd / 8] & ~before[fd / 8] & 1 << fd % 8;
		count += is_new && is_shared(fd);
	}
	return count;
}

/* Whether there is a child process, which the application may still wait for. */
static bool has_children(void)
{
	siginfo_t child;

	return waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

const char *surus_warmup_obstacle(void)
{
	static char text[64];
	int opened;

	if (surus_engine_boots_in_prototype()) {
		return NULL;
	}
	opened = results ? count_opened() : -1;
	if (opened < 0) {
		return "descriptors that cannot be listed";
	}
	if (opened > 0) {
		snprintf(text, sizeof(text), "%d connections, pipes or files open", opened);
		return text;
	}
	return surus_procfs_has_threads() ? "threads" : has_children() ? "child processes" : NULL;
}

void surus_warmup_files_save(void)
{
	static unsigned char now[SURUS_DESCRIPTORS];
	const int count = (int)(sizeof(files) / sizeof(*files));
	int last;

	memset(files, 0, sizeof(files));
	if (!surus_boot_fds_find_open(now, &last)) {
		return;
	}
	for (int fd = 3; fd <= last && fd < count; fd++) {
		if (now[fd / 8] & 1 << fd % 8) {
			files[fd].is_open = true;
			files[fd].flags = fcntl(fd, F_GETFL);
			files[fd].offset = lseek(fd, 0, SEEK_CUR);
		}
	}
}

void surus_warmup_files_restore(void)
{
	for (size_t fd = 3; fd < sizeof(files) / sizeof(*files); fd++) {
		if (!files[fd].is_open) {
			continue;
		}
		if (files[fd].offset >= 0 && lseek((int)fd, 0, SEEK_CUR) != files[fd].offset) {
			lseek((int)fd, files[fd].offset, SEEK_SET);
		}
		if (files[fd].flags >= 0 && fcntl((int)fd, F_GETFL) != files[fd].flags) {
			fcntl((int)fd, F_SETFL, files[fd].flags);
		}
	}
}

bool surus_warmup_files_separate(void)
{
	static unsigned char now[SURUS_DESCRIPTORS];
	const int count = (int)(sizeof(files) / sizeof(*files));
	int last;

	if (!surus_boot_fds_save(now, &last)) {
		return true; /* without /proc */
	}
	for (int fd = 3; fd <= last && fd < count; fd++) {
		struct stat file;
		if (!surus_boot_fds_has(fd) || fstat(fd, &file) != 0) {
			continue;
		}
		surus_temp_file_add(fd, &file);
		if (!surus_temp_file_is(fd)) {
			continue;
		}
		int own = surus_temp_file_copy(fd);
		if (own < 0) {
			return false;
		}
		if (files[fd].offset >= 0) {
			lseek(own, files[fd].offset, SEEK_SET);
		}
		surus_fd_replace(fd, own);
	}
	return true;
}

bool surus_warmup_files_written(void)
{
	const int count = (int)(sizeof(files) / sizeof(*files));

	for (int fd = 3; fd < count; fd++) {
		struct stat file;
		if (surus_temp_file_is(fd) && fstat(fd, &file) == 0 && surus_temp_file_is_written(&file)) {
			return true;
		}
	}
	return false;
}

bool surus_warmup_is_known(int number)
{
	return results && number < MOST && atomic_load(&results[number]) != UNKNOWN;
}

bool surus_warmup_is_left_out(int number)
{
	return results && number < MOST && atomic_load(&results[number]) == LEFT_OUT;
}

bool surus_warmup_record(int number, bool is_left_out)
{
	return !results || number >= MOST ||
	       atomic_exchange(&results[number], is_left_out ? LEFT_OUT : FINE) == UNKNOWN;
}
