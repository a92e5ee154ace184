/* Restores kernel state after a request: descriptors, umask, working directory. Detects what cannot
 * be restored, such as children and signal handlers; then the worker is replaced. */
#include "rewind/kernel/kernel_state.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <php.h>

#include "base/persistent_map.h"
#include "base/procfs.h"
#include "base/reason.h"
#include "base/replace_fd.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "php/boot_objects.h"
#include "php/fd_flags.h"
#include "rewind/kernel/anon_fds.h"
#include "rewind/kernel/boot_fds.h"
#include "rewind/kernel/file_locks.h"
#include "rewind/kernel/log_fds.h"
#include "rewind/kernel/signals.h"
#include "rewind/kernel/socket_pairs.h"
#include "rewind/kernel/temp_files.h"

static struct kernel {
	int last; /* between requests, exactly descriptors 0 to this one are open */
	int directory; /* the working directory */
	mode_t umask;
	const char *unrestorable; /* why the state cannot be restored; set by hooked functions */
	/* The files of the boot's descriptors, and their offsets. */
	struct file {
		int fd;
		dev_t device;
		ino_t inode;
		off_t offset; /* -1: not seekable, or append-only */
		bool temporary;
		bool counter; /* an eventfd with the value `count` */
		uint64_t count;
	} files[SURUS_DESCRIPTORS * 8];
	size_t file_count;
} *k;

/* --- functions that change the process --- */

static const struct {
	const char *name, *why;
} unrestorable[] = {
	{"pcntl_signal", "signals: a signal handler was set (pcntl_signal)"},
	{"pcntl_sigprocmask", "signals: signals were blocked (pcntl_sigprocmask)"},
	{"pcntl_alarm", "signals: an alarm was set (pcntl_alarm)"},
	{"pcntl_fork", "process: a process was forked (pcntl_fork)"},
	{"pcntl_rfork", "process: a process was forked (pcntl_rfork)"},
	{"pcntl_forkx", "process: a process was forked (pcntl_forkx)"},
	{"pcntl_unshare", "identity: a namespace was left (pcntl_unshare)"},
	{"pcntl_setns", "identity: a namespace was entered (pcntl_setns)"},
	{"pcntl_setpriority", "limits: the priority was changed (pcntl_setpriority)"},
	{"pcntl_setcpuaffinity", "limits: the CPU affinity was changed (pcntl_setcpuaffinity)"},
	{"proc_nice", "limits: the priority was changed (proc_nice)"},
	{"posix_setrlimit", "limits: a limit was changed (posix_setrlimit)"},
	{"posix_setuid", "identity: the user was changed (posix_setuid)"},
	{"posix_seteuid", "identity: the user was changed (posix_seteuid)"},
	{"posix_setgid", "identity: the group was changed (posix_setgid)"},
	{"posix_setegid", "identity: the group was changed (posix_setegid)"},
	{"posix_initgroups", "identity: the groups were changed (posix_initgroups)"},
	{"posix_setsid", "identity: a session was begun (posix_setsid)"},
	{"posix_setpgid", "identity: the process group was changed (posix_setpgid)"},
	{"chroot", "identity: the root directory was changed (chroot)"},
	{"dl", "native: an extension was loaded (dl)"},
	{"cli_set_process_title", "identity: the title of the process was changed"},
	/* Only if their first argument was made by the boot. */
	{"socket_shutdown", "descriptor: a socket of the boot was shut down (socket_shutdown)"},
	{"socket_set_option",
	        "descriptor: a socket of the boot was given another option (socket_set_option)"},
	{"socket_setopt", "descriptor: a socket of the boot was given another option (socket_setopt)"},
	{"stream_socket_shutdown",
	        "descriptor: a socket of the boot was shut down (stream_socket_shutdown)"},
	{"socket_connect", "descriptor: a socket of the boot was connected (socket_connect)"},
	{"socket_bind", "descriptor: a socket of the boot was bound (socket_bind)"},
	{"socket_listen", "descriptor: a socket of the boot was made to listen (socket_listen)"},
	{"socket_import_stream",
	        "descriptor: a socket of the boot was taken out of its stream (socket_import_stream)"},
	{"socket_export_stream",
	        "descriptor: a socket of the boot was made a stream (socket_export_stream)"},
};

enum { UNRESTORABLE = sizeof(unrestorable) / sizeof(*unrestorable), OF_BOOT = UNRESTORABLE - 9 };

static struct {
	const zend_string *name; /* closures have a copy of the function with the same name */
	zif_handler handler;
} hooked[UNRESTORABLE];

static bool is_called_with_boot_object(zend_execute_data *call)
{
	const zval *first = ZEND_CALL_NUM_ARGS(call) > 0 ? ZEND_CALL_ARG(call, 1) : NULL;

	return first && ((Z_TYPE_P(first) == IS_OBJECT && surus_boot_objects_has(Z_OBJ_P(first))) ||
	                 (Z_TYPE_P(first) == IS_RESOURCE &&
	                 surus_boot_fds_has_resource(Z_RES_HANDLE_P(first))));
}

static ZEND_FUNCTION(surus_unrestorable)
{
	for (size_t i = 0; i < UNRESTORABLE; i++) {
		if (hooked[i].name == EX(func)->common.function_name) {
			if (i < OF_BOOT || is_called_with_boot_object(execute_data)) {
				k->unrestorable = unrestorable[i].why;
			}
			hooked[i].handler(INTERNAL_FUNCTION_PARAM_PASSTHRU);
			return;
		}
	}
}

static zif_handler ffi_handlers[3];
static const char *const ffi_names[] = {"cdef", "load", "scope"};

static ZEND_FUNCTION(surus_ffi)
{
	k->unrestorable = "native: native code was called, which may have changed anything (FFI)";
	for (size_t i = 0; i < sizeof(ffi_names) / sizeof(*ffi_names); i++) {
		if (zend_string_equals_cstr(EX(func)->common.function_name, ffi_names[i],
		        strlen(ffi_names[i]))) {
			ffi_handlers[i](INTERNAL_FUNCTION_PARAM_PASSTHRU);
			return;
		}
	}
}

static void hook(void)
{
	for (size_t i = 0; i < UNRESTORABLE; i++) {
		zend_function *function = zend_hash_str_find_ptr(CG(function_table), unrestorable[i].name,
		        strlen(unrestorable[i].name));
		if (function && function->type == ZEND_INTERNAL_FUNCTION) {
			hooked[i].name = function->common.function_name;
			hooked[i].handler = function->internal_function.handler;
			function->internal_function.handler = ZEND_FN(surus_unrestorable);
		}
	}
	zend_class_entry *ffi = zend_hash_str_find_ptr(CG(class_table), "ffi", sizeof("ffi") - 1);
	for (size_t i = 0; ffi && i < sizeof(ffi_names) / sizeof(*ffi_names); i++) {
		zend_function *method = zend_hash_str_find_ptr(&ffi->function_table, ffi_names[i],
		        strlen(ffi_names[i]));
		if (method && method->type == ZEND_INTERNAL_FUNCTION) {
			ffi_handlers[i] = method->internal_function.handler;
			method->internal_function.handler = ZEND_FN(surus_ffi);
		}
	}
}

/* --- descriptors --- */

/* Opens the file of the boot's descriptor again; -1 on failure. */
static int reopen(int fd, const char *path, int flags)
{
	if (surus_log_is(fd)) {
		return surus_log_open(STDERR_FILENO, flags);
	}
	return surus_temp_file_is(fd) ? surus_temp_file_copy(fd)
	        : open(path, flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW));
}

/* Opens a file of the boot again, because workers would share its offset and locks with the
 * prototype process. NULL, or why that failed. */
static const char *reopen_file(int fd, const struct stat *file)
{
	static char text[512];
	char path[64];
	int flags = fcntl(fd, F_GETFL), own;
	bool opens = surus_log_is(fd) || ((S_ISREG(file->st_mode) || S_ISDIR(file->st_mode)) &&
	        !(flags & O_PATH));
	bool temporary = surus_temp_file_is(fd);
	off_t offset = opens && !(flags & O_APPEND) ? lseek(fd, 0, SEEK_CUR) : -1;
	struct file *saved = &k->files[k->file_count++];

	surus_locks_add(fd, file);
	*saved = (struct file){.fd = fd, .device = file->st_dev, .inode = file->st_ino,
	        .offset = offset, .temporary = temporary};
	if (!opens) {
		saved->counter = surus_anon_fds_take_counter(fd, &saved->count);
		return NULL;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = reopen(fd, path, flags);
	if (own < 0 && !temporary && offset < 0) {
		/* for example a log that was rotated and belongs to another user now; an append-only file
		 * may be shared */
		return NULL;
	}
	if (own < 0) {
		int error = errno;
		char name[256];
		ssize_t len = readlink(path, name, sizeof(name));
		snprintf(text, sizeof(text), "cannot reopen %.*s, which the boot leaves open: %s",
		        (int)(len < 0 ? 0 : len), name,
		         strerror(error));
		return text;
	}
	struct stat now;
	if (fstat(own, &now) == 0) {
		saved->device = now.st_dev;
		saved->inode = now.st_ino;
	}
	if (offset >= 0) {
		lseek(own, offset, SEEK_SET);
	}
	surus_fd_replace(fd, own);
	return NULL;
}

bool surus_kernel_install(void)
{
	k = surus_persistent_map(sizeof(*k));

	/* A process of `fork` ends with its request, but a warm-up's changes stay. */
	if (k && (surus_settings.engine == SURUS_REWIND || surus_settings.warms_up)) {
		hook();
	}
	if (k) {
		surus_locks_watch();
		surus_temp_file_watch();
	}
	return k && surus_boot_fds_prepare();
}

const char *surus_kernel_checkpoint(void)
{
	static unsigned char open_ones[SURUS_DESCRIPTORS];
	const char *why, *failed = NULL;

	k->directory = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (k->directory < 0) {
		failed = surus_reason("cannot open the working directory");
	}
	k->umask = umask(0);
	umask(k->umask);
	k->unrestorable = NULL;
	if ((why = surus_pairs_take())) {
		return why;
	}
	if (!failed && !surus_boot_fds_find_open(open_ones, &k->last)) {
		failed = surus_reason("cannot list the open descriptors (/proc/self/fd)");
	}
	if (failed) {
		/* The engine `fork` works without /proc, too. */
		return surus_settings.engine == SURUS_REWIND ? failed : NULL;
	}
	for (int fd = 0; fd <= k->last; fd++) {
		struct stat file;
		if (!(open_ones[fd / 8] & 1 << fd % 8)) {
			/* Fills the gaps, so that a request's descriptors come after these, and a gap means
			 * that the request has closed one. */
			int filler = open("/dev/null", O_RDWR | O_CLOEXEC);
			if (filler < 0) {
				/* An empty root has no devices. Also the lowest number that is free. */
				filler = fcntl(k->directory, F_DUPFD_CLOEXEC, 0);
			}
			if (filler != fd) {
				return filler < 0 ? surus_reason("cannot fill the gaps between the descriptors")
				        : "cannot fill the gaps between the descriptors: more are open than listed";
			}
			continue;
		}
		if (!surus_boot_fds_has(fd)) {
			continue;
		}
		if (fstat(fd, &file) == 0 && (why = reopen_file(fd, &file))) {
			return why;
		}
		surus_flags_save(fd);
	}
	return NULL;
}

static const char *restore_descriptors(void)
{
	int lowest = fcntl(0, F_DUPFD_CLOEXEC, 0);

	if (lowest <= k->last) {
		return "descriptor: a descriptor of the boot was closed";
	}
	if (syscall(SYS_close_range, (unsigned)k->last + 1, ~0u, 0) != 0) {
		static unsigned char open_ones[SURUS_DESCRIPTORS];
		int last;
		if (!surus_boot_fds_find_open(open_ones, &last)) {
			return "descriptor: cannot close what the request has opened (/proc/self/fd)";
		}
		for (int fd = k->last + 1; fd <= last; fd++) {
			close(fd);
		}
	}
	for (size_t i = 0; i < k->file_count; i++) {
		struct file *file = &k->files[i];
		struct stat now;
		/* Closed, and the number reused. */
		if (fstat(file->fd, &now) != 0 || now.st_dev != file->device || now.st_ino != file->inode) {
			return "descriptor: a descriptor of the boot was closed";
		}
		if (file->temporary && surus_temp_file_is_written(&now)) {
			return "descriptor: a temporary file that the boot had opened was written to "
			        "(php://temp, tmpfile)";
		}
		if (file->counter && !surus_anon_fds_restore_counter(file->fd, file->count)) {
			return "descriptor: cannot restore a counter that the boot had opened (eventfd)";
		}
		if (file->offset >= 0) {
			lseek(file->fd, file->offset, SEEK_SET);
		}
	}
	return surus_pairs_are_empty() ? NULL
	                               : "descriptor: something was left in a pair of sockets or a "
	                               "pipe that the boot had opened";
}

bool surus_kernel_is_restored(void)
{
	struct stat here, before;
	int lowest = fcntl(0, F_DUPFD_CLOEXEC, 0);
	mode_t mask = umask(k->umask);

	close(lowest);
	return lowest == k->last + 1 && mask == k->umask && waitpid(-1, NULL, WNOHANG | __WALL) < 0 &&
	        fstat(k->directory, &before) == 0 &&
	       stat(".", &here) == 0 && here.st_dev == before.st_dev && here.st_ino == before.st_ino;
}

const char *surus_kernel_restore(bool no_calls)
{
	pid_t child;

	if (k->unrestorable) {
		return k->unrestorable;
	}
	if (surus_signals_are_pending()) {
		return "signals: a signal that the boot has blocked was left waiting";
	}
	if (no_calls) {
		return NULL;
	}
	while ((child = waitpid(-1, NULL, WNOHANG | __WALL)) > 0) {
	}
	if (child == 0) {
		return "process: a child process was left running";
	}
	const char *why = restore_descriptors();
	if (why) {
		return why;
	}
	umask(k->umask);
	return fchdir(k->directory) == 0 ? NULL : "directory: the working directory no longer exists";
}

void surus_kernel_forget_calls(void)
{
	if (k) {
		k->unrestorable = NULL;
	}
}

const char *surus_kernel_call(void)
{
	return k ? k->unrestorable : NULL;
}
