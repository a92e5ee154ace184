/* Supervises the workers: forks them, replaces those that exit, reports to Surus.
 *
 * The process runs no requests, so that it always responds quickly, and is single-threaded, so that
 * forking is safe. On `fork` and `rewind` it forks from within the script's call of
 * surus_serve(). */
#include "master/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/exit_status.h"
#include "base/process_state.h"
#include "base/procfs.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "ipc/inbox.h"
#include "master/inherited.h"
#include "master/pcre_refresh.h"
#include "php/boot_files.h"
#include "php/opcache.h"
#include "php/pcre_cache.h"
#include "php/slow_request.h"
#include "php/startup_report.h"
#include "rewind/kernel/signals.h"
#include "worker/worker.h"

struct slot {
	pid_t pid; /* 0: no worker */
	uint64_t filled_at; /* when the worker was forked */
	uint64_t fill_after; /* when an empty slot may be filled */
	/* microseconds; grows while workers exit before they have served a request */
	uint64_t backoff;
};

static struct slot *slots;
static uint32_t target; /* how many slots must have workers, as Surus has said last */
static bool draining; /* Surus has closed the request socket */
static bool emptied; /* and no request is left */
static int signals = -1; /* reports workers that exited */
/* Surus reads messages of 16 KiB. */
enum { OF_PHP = 8192, OF_WARM_UPS = 4096 };
static char report[OF_PHP + OF_WARM_UPS];

/* Sends text and descriptors to Surus. If Surus has exited, the next poll shows it. */
static void send_message(const char *text, size_t len, const int *fds, size_t count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(3 * sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)text, .iov_len = len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (count > 0) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, count * sizeof(int));
	}
	while (sendmsg(SURUS_FD_CONTROL, &msg, MSG_NOSIGNAL) < 0 && errno == EINTR) {
	}
}

/* Resets a line for the next worker. */
static void clear(struct surus_line *line)
{
	memset(line, 0, sizeof(*line));
	atomic_store(&line->since, surus_clock_now());
}

/* In a new worker: gives Surus this process's memory, so that Surus can set the interrupt flag. If
 * that fails, Surus finds at the first slow request that it has no memory of this worker. */
static void share_memory(void)
{
	char text[64];
	int memory = surus_procfs_open_memory();

	if (memory >= 0) {
		int len = snprintf(text, sizeof(text), "memory %d %llu", (int)getpid(),
		        (unsigned long long)surus_slow_request_flag());
		send_message(text, (size_t)len, &memory, 1);
		close(memory);
	}
}

/* Forks the worker of slot `index`. True: this process is that worker. If it fails, the slot stays
 * empty and is tried again later. */
static bool fill(uint32_t index)
{
	struct slot *slot = &slots[index];
	int outbox[2] = {-1, -1}, log[2] = {-1, -1}, pidfd = -1;
	char text[64];
	pid_t pid;

	slot->fill_after = surus_clock_now() + slot->backoff;
	if (surus_engine_boots_in_prototype()) {
		surus_master_refresh_pcre_cache();
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, outbox) != 0 ||
	        pipe2(log, O_CLOEXEC) != 0) {
		fprintf(stderr, "surus-php: cannot create a worker: %m\n");
		goto failed;
	}
	clear(&surus_lines[index]);
	fflush(NULL);
	surus_process->forks_workers = true;
	pid = fork();
	surus_process->forks_workers = false;
	if (pid < 0) {
		fprintf(stderr, "surus-php: cannot fork another worker: %m\n");
		goto failed;
	}
	if (pid == 0) {
		close(outbox[0]);
		close(log[0]);
		if (surus_settings.traces_slow) {
			share_memory();
		}
		close(SURUS_FD_CONTROL);
		close(signals);
		surus_pcre_cache_close_trial();
		if (!surus_engine_boots_in_prototype()) {
			surus_procfs_unguard(); /* the others open more files first */
		}
		surus_process->line = &surus_lines[index];
		atomic_store(&surus_lines[index].pid, (uint32_t)getpid());
		surus_process->index = index;
		surus_process->pid = getpid();
		surus_worker_become(outbox[1], log[1]);
		surus_signals_apply();
		return true;
	}
	/* The child has not been reaped yet, so its pid is still its own. */
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	slot->pid = pid;
	slot->filled_at = surus_clock_now();
	int fds[] = {outbox[0], log[0], pidfd};
	int len = snprintf(text, sizeof(text), "worker %u %d", index, (int)pid);
	send_message(text, (size_t)len, fds, pidfd >= 0 ? 3 : 2);
	close(outbox[0]);
	close(outbox[1]);
	close(log[0]);
	close(log[1]);
	if (pidfd >= 0) {
		close(pidfd);
	}
	return false;
failed:
	for (int i = 0; i < 2; i++) {
		if (outbox[i] >= 0) {
			close(outbox[i]);
		}
		if (log[i] >= 0) {
			close(log[i]);
		}
	}
	slot->fill_after = surus_clock_now() + 100000;
	return false;
}

/* Reaps workers and reports them to Surus. */
static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		surus_pcre_cache_reaped(pid);
		for (uint32_t i = 0; i < surus_settings.workers; i++) {
			struct slot *slot = &slots[i];
			if (slot->pid != pid) {
				continue;
			}
			char text[128];
			/* Includes the state in its line, which Surus checks, because the line will be another
			 * worker's. */
			int len = snprintf(text, sizeof(text), "exited %u %d %d %u %u %llu", i, (int)pid,
			        status,
			                   atomic_load(&surus_lines[i].state),
			                   atomic_load(&surus_lines[i].slot),
			                   (unsigned long long)atomic_load(&surus_lines[i].tag));
			send_message(text, (size_t)len, NULL, 0);
			slot->pid = 0;
			/* Exits for other reasons may leave requests behind. A worker whose setup fails never
			 * takes any. */
			emptied |= WIFEXITED(status) && (WEXITSTATUS(status) == SURUS_EXIT_DRAINED ||
			                                 WEXITSTATUS(status) == SURUS_EXIT_SETUP_FAILED ||
			                                 WEXITSTATUS(status) == SURUS_EXIT_BOOT_FAILED);
			/* A worker that exits before it has served a request would probably do so again at
			 * once. The line may be forged, so the longest pause is one second. */
			bool has_served = WIFEXITED(status) && WEXITSTATUS(status) >= SURUS_EXIT_MAX_REQUESTS &&
			                  WEXITSTATUS(status) != SURUS_EXIT_SETUP_FAILED &&
			                  WEXITSTATUS(status) != SURUS_EXIT_BOOT_FAILED;
			if (!has_served && atomic_load(&surus_lines[i].taken) == 0 &&
			        surus_clock_now() - slot->filled_at < 1000000) {
				slot->backoff = slot->backoff ? slot->backoff * 2 : 50000;
				if (slot->backoff > 1000000) {
					slot->backoff = 1000000;
				}
			} else {
				slot->backoff = 0;
			}
			slot->fill_after = surus_clock_now() + slot->backoff;
		}
	}
}

/* Fills the slots that are due, of those for which there should be a worker. Sets `wait` to the
 * milliseconds until the next one is due; -1: none. True: this process is a new worker. */
static bool fill_due(int *wait)
{
	*wait = -1;
	for (uint32_t i = 0; i < target; i++) {
		if (slots[i].pid != 0) {
			continue;
		}
		uint64_t now = surus_clock_now();
		if (now >= slots[i].fill_after && fill(i)) {
			return true;
		}
		if (slots[i].pid == 0) {
			uint64_t due = slots[i].fill_after;
			int ms = due > now ? (int)((due - now) / 1000) + 1 : 1;
			*wait = *wait < 0 || ms < *wait ? ms : *wait;
		}
	}
	return false;
}

static bool any_worker(void)
{
	for (uint32_t i = 0; i < surus_settings.workers; i++) {
		if (slots[i].pid != 0) {
			return true;
		}
	}
	return false;
}

/* Reports, once, that OPcache accepts no new files. Surus asks while requests run, and after
 * them. */
static void check_opcache(void)
{
	static bool reported;

	if (reported || !surus_engine_boots_in_prototype()) {
		return;
	}
	const char *blocked = surus_opcache_blocked();
	if (blocked) {
		char text[32];
		int len = snprintf(text, sizeof(text), "opcache %s", blocked);
		send_message(text, (size_t)len, NULL, 0);
		reported = true;
	}
}

/* Continues a check that Surus has asked for. Workers are replaced between its slices. */
static void check_files(int *wait)
{
	char answer[8192];

	if (!surus_boot_files_is_checking()) {
		return;
	}
	size_t len = surus_boot_files_check(answer, sizeof(answer));
	if (len > 0) {
		send_message(answer, len, NULL, 0);
	} else {
		*wait = 0;
	}
}

/* Undoes what a script has set on the request socket, which all workers share. False: it happened
 * before. Then a process that outlives its request may do it any number of times, and only
 * another socket helps. */
static bool silence_inbox(void)
{
	static bool was_set;
	bool is_again = was_set;

	if (!surus_inbox_reset_signals()) {
		return true;
	}
	was_set = true;
	fprintf(stderr,
	        "surus-php: a script had each message in the request socket signal workers (F_SETOWN, "
	        "O_ASYNC); %s\n",
	        is_again ? "the master process exits and is replaced" : "undone");
	return !is_again;
}

static void kill_workers(void)
{
	for (uint32_t i = 0; i < surus_settings.workers; i++) {
		if (slots[i].pid != 0) {
			kill(slots[i].pid, SIGKILL);
		}
	}
}

/* This machine may be one of many copies of a snapshot: random bytes that a worker has drawn are
 * the same in all copies. Workers that are forked from here on draw new ones. */
static void restart_workers(void)
{
	const char text[] = "restarting";

	/* Before any worker exits, so that Surus knows which exits are meant. */
	send_message(text, sizeof(text) - 1, NULL, 0);
	kill_workers();
	for (uint32_t i = 0; i < surus_settings.workers; i++) {
		/* Its exit must not delay its successor. */
		slots[i].filled_at = 0;
		slots[i].backoff = 0;
	}
}

/* True: this process is a new worker. False: the process is done. */
static bool run(void)
{
	struct pollfd polled[] = {
		{.fd = SURUS_FD_CONTROL, .events = POLLIN},
		{.fd = signals, .events = POLLIN},
	};

	while (!draining || !emptied || any_worker()) {
		int wait = -1;
		if (surus_inherited_has_changed()) {
			fprintf(stderr,
			        "surus-php: a script has changed the limits, priority or CPUs of the master "
			        "process (prlimit, nice, taskset); it exits and is replaced\n");
			break;
		}
		if (!(draining && emptied) && fill_due(&wait)) {
			return true;
		}
		check_files(&wait);
		if (poll(polled, 2, wait) < 0 && errno != EINTR) {
			break;
		}
		if (polled[1].revents & POLLIN) {
			struct signalfd_siginfo info;
			while (read(signals, &info, sizeof(info)) == sizeof(info)) {
			}
			if (!silence_inbox()) {
				break;
			}
		}
		reap();
		if (polled[0].revents) {
			char text[32];
			ssize_t len = recv(SURUS_FD_CONTROL, text, sizeof(text) - 1, MSG_DONTWAIT);
			if (len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR)) {
				/* Surus has exited. */
				kill_workers();
				return false;
			}
			if (len > 0) {
				text[len] = '\0';
				if (strcmp(text, "drain") == 0) {
					/* Surus has closed the request socket; the workers exit once it is empty. */
					draining = true;
					emptied = false;
				} else if (strcmp(text, "restart") == 0) {
					restart_workers();
				} else if (strcmp(text, "check") == 0) {
					surus_boot_files_begin_check();
				} else if (strncmp(text, "scale ", 6) == 0) {
					/* The next round forks those that are missing. */
					target = (uint32_t)strtoul(text + 6, NULL, 10);
					target = target < surus_settings.workers ? target : surus_settings.workers;
				} else if (strcmp(text, "opcache") == 0) {
					check_opcache();
				}
			}
		}
	}
	return false;
}

/* While PHP starts, the control socket is not polled, and the application's code may run
 * (preloading, even in a process of its own) and hang. If Surus exits or gives up meanwhile, this
 * handler kills the process group, which contains this pool only. */
static void on_control(int signal)
{
	struct pollfd control = {.fd = SURUS_FD_CONTROL, .events = 0};
	(void)signal;
	if (poll(&control, 1, 0) > 0) {
		kill(0, SIGKILL);
	}
}

static void watch_control(bool on)
{
	struct sigaction action = {.sa_handler = on ? on_control : SIG_DFL, .sa_flags = SA_RESTART};

	sigemptyset(&action.sa_mask);
	if (on) {
		sigaction(SIGIO, &action, NULL);
		fcntl(SURUS_FD_CONTROL, F_SETOWN, getpid());
	}
	fcntl(SURUS_FD_CONTROL, F_SETFL, on ? O_ASYNC : 0);
	if (on) {
		on_control(SIGIO); /* it may have exited before the signal was requested */
	} else {
		sigaction(SIGIO, &action, NULL);
	}
}

bool surus_master_create(void)
{
	slots = calloc(surus_settings.workers, sizeof(*slots));
	return slots != NULL;
}

void surus_master_php_starting(void)
{
	watch_control(true);
}

void surus_master_php_started(void)
{
	surus_startup_report(report, OF_PHP);
}

bool surus_master_serve(const char *warm_ups)
{
	sigset_t ended;

	watch_control(false);
	surus_signals_save();
	if (surus_engine_boots_in_prototype()) {
		/* The application may change its own. */
		surus_inherited_save();
	}
	sigemptyset(&ended);
	sigaddset(&ended, SIGCHLD);
	signals = signalfd(-1, &ended, SFD_CLOEXEC | SFD_NONBLOCK);
	size_t len = strlen(report);
	snprintf(report + len, sizeof(report) - len, "%s", warm_ups);
	send_message(report, strlen(report), NULL, 0);
	return run();
}
