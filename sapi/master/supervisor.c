/* The life of the template: starts PHP once, forks the workers, replaces those that end. It runs no
 * events, so it is always quick to answer, and single-threaded, so that forking is safe. Where the
 * engine wants it, it boots the application first and forks from inside the script's call to
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
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/exit_status.h"
#include "base/process_state.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "master/relearn.h"
#include "php/opcache.h"
#include "php/pcre_cache.h"
#include "php/startup_report.h"
#include "rewind/kernel/signals.h"
#include "worker/worker.h"

struct place {
	pid_t pid;            /* 0 when empty */
	uint64_t filled_at;   /* when the process was forked */
	uint64_t fill_after;  /* an empty place is filled at this time, not before */
	/* microseconds; grows while workers die before they have served anything */
	uint64_t backoff;
};

static struct place *places;
static uint64_t filled; /* workers forked so far */
static bool retiring; /* surus has closed the inbox */
static bool emptied;  /* and there is nothing left in it */
static int signals = -1; /* tells of ended workers */
static char report[8192];

/* Sends text and descriptors to surus. A surus that is gone shows in the next poll. */
static void tell(const char *text, size_t len, const int *fds, size_t count)
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

/* Makes a line that of a worker to come. */
static void clear(struct surus_line *line)
{
	memset(line, 0, sizeof(*line));
	atomic_store(&line->since, surus_now());
}

/* Forks the worker of place `index`. True: we are that worker. On failure the place stays empty and
 * is tried again later. */
static bool fill(uint32_t index)
{
	struct place *place = &places[index];
	int outbox[2] = {-1, -1}, log[2] = {-1, -1}, pidfd = -1;
	char text[64];
	pid_t pid;

	place->fill_after = surus_now() + place->backoff;
	if (surus_boots_in_template()) {
		surus_boot_learn();
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, outbox) != 0 ||
	        pipe2(log, O_CLOEXEC) != 0) {
		fprintf(stderr, "surus-php: no descriptors for another worker: %m\n");
		goto failed;
	}
	clear(&surus_lines[index]);
	fflush(NULL);
	surus_self->forks_workers = true;
	pid = fork();
	surus_self->forks_workers = false;
	if (pid < 0) {
		fprintf(stderr, "surus-php: cannot fork another worker: %m\n");
		goto failed;
	}
	if (pid == 0) {
		close(outbox[0]);
		close(log[0]);
		close(SURUS_FD_CONTROL);
		close(signals);
		surus_regex_leave_trial();
		surus_self->line = &surus_lines[index];
		atomic_store(&surus_lines[index].pid, (uint32_t)getpid());
		surus_self->place = index;
		surus_self->pid = getpid();
		surus_worker_become(outbox[1], log[1]);
		surus_signals_take();
		return true;
	}
	/* The child is not reaped yet, so its pid is still its own. */
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	place->pid = pid;
	place->filled_at = surus_now();
	filled++;
	int fds[] = {outbox[0], log[0], pidfd};
	int len = snprintf(text, sizeof(text), "worker %u %d", index, (int)pid);
	tell(text, (size_t)len, fds, pidfd >= 0 ? 3 : 2);
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
	place->fill_after = surus_now() + 100000;
	return false;
}

/* Collects ended workers. */
static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		surus_regex_reaped(pid);
		for (uint32_t i = 0; i < surus_settings.workers; i++) {
			struct place *place = &places[i];
			if (place->pid != pid) {
				continue;
			}
			char text[128];
			/* With what its line says that it was doing, which surus checks: the line is about to
			 * belong to another. */
			int len = snprintf(text, sizeof(text), "exited %u %d %d %u %u %llu", i, (int)pid,
			        status,
			                   atomic_load(&surus_lines[i].state),
			                   atomic_load(&surus_lines[i].request),
			                   (unsigned long long)atomic_load(&surus_lines[i].tag));
			tell(text, (size_t)len, NULL, 0);
			place->pid = 0;
			/* Others end for reasons of their own, and may leave events behind. One that cannot
			 * even begin never takes any. */
			emptied |= WIFEXITED(status) && (WEXITSTATUS(status) == SURUS_EXIT_INBOX_CLOSED ||
			                                 WEXITSTATUS(status) == SURUS_EXIT_SETUP ||
			                                 WEXITSTATUS(status) == SURUS_EXIT_BOOT);
			/* A worker that ends without having served anything would do so again at once. Its line
			 * may say that although it is not so: the longest pause is one second. */
			bool has_served = WIFEXITED(status) && WEXITSTATUS(status) >= SURUS_EXIT_MAX_REQUESTS &&
			                  WEXITSTATUS(status) != SURUS_EXIT_SETUP &&
			                  WEXITSTATUS(status) != SURUS_EXIT_BOOT;
			if (!has_served && atomic_load(&surus_lines[i].taken) == 0 &&
			        surus_now() - place->filled_at < 1000000) {
				place->backoff = place->backoff ? place->backoff * 2 : 50000;
				if (place->backoff > 1000000) {
					place->backoff = 1000000;
				}
			} else {
				place->backoff = 0;
			}
			place->fill_after = surus_now() + place->backoff;
		}
	}
}

/* Fills what is due. `wait` becomes the milliseconds until the next is, -1 when none is waiting.
 * True: we are a new worker. */
static bool fill_due(int *wait)
{
	*wait = -1;
	for (uint32_t i = 0; i < surus_settings.workers; i++) {
		if (places[i].pid != 0) {
			continue;
		}
		uint64_t now = surus_now();
		if (now >= places[i].fill_after && fill(i)) {
			return true;
		}
		if (places[i].pid == 0) {
			uint64_t due = places[i].fill_after;
			int ms = due > now ? (int)((due - now) / 1000) + 1 : 1;
			*wait = *wait < 0 || ms < *wait ? ms : *wait;
		}
	}
	return false;
}

static bool any_worker(void)
{
	for (uint32_t i = 0; i < surus_settings.workers; i++) {
		if (places[i].pid != 0) {
			return true;
		}
	}
	return false;
}

/* Where what is booted runs in this process, looks now and then whether OPcache still takes what is
 * new, and says once that it does not. `wait` is at most the milliseconds until it looks again. */
static void look_at_opcache(int *wait)
{
	enum { PAUSE = 2000000 };
	static uint64_t looks_at, seen, before;
	static bool over;
	uint64_t now = surus_now();

	if (over || !surus_boots_in_template()) {
		return;
	}
	if (now >= looks_at) {
		/* Where nothing has run, nothing has changed. A worker that serves one event leaves no
		 * line, but a successor. What runs while we look, or has begun since the last time, has not
		 * run for the last time. */
		uint64_t run = filled;
		bool runs = false;
		for (uint32_t i = 0; i < surus_settings.workers; i++) {
			uint32_t state = atomic_load(&surus_lines[i].state);

			run += atomic_load(&surus_lines[i].taken);
			runs |= state >= SURUS_RECEIVED && state <= SURUS_FINISHING;
		}
		const char *stuck = run != seen ? surus_opcache_stuck() : NULL;
		if (stuck) {
			char text[32];
			int len = snprintf(text, sizeof(text), "opcache %s", stuck);
			tell(text, (size_t)len, NULL, 0);
			over = true;
			return;
		}
		seen = runs || run != before ? UINT64_MAX : run;
		before = run;
		looks_at = now + PAUSE;
	}
	int ms = (int)((looks_at - now) / 1000) + 1;
	*wait = *wait < 0 || ms < *wait ? ms : *wait;
}

static void end_workers(void)
{
	for (uint32_t i = 0; i < surus_settings.workers; i++) {
		if (places[i].pid != 0) {
			kill(places[i].pid, SIGKILL);
		}
	}
}

/* This machine may be one of many copies, made while we waited: what a worker has drawn ahead, it
 * has drawn for all of them. Those that we fork from here draw anew. */
static void renew_workers(void)
{
	const char text[] = "renewing";

	/* Before any of their ends: surus has heard of all that are meant, and of none that comes after
	 * them. */
	tell(text, sizeof(text) - 1, NULL, 0);
	end_workers();
	for (uint32_t i = 0; i < surus_settings.workers; i++) {
		/* Its end is no reason to let the next one wait. */
		places[i].filled_at = 0;
		places[i].backoff = 0;
	}
}

/* True: we are a new worker. False: there is nothing more to do. */
static bool run(void)
{
	struct pollfd polled[] = {
		{.fd = SURUS_FD_CONTROL, .events = POLLIN},
		{.fd = signals, .events = POLLIN},
	};

	while (!retiring || !emptied || any_worker()) {
		int wait = -1;
		if (!(retiring && emptied) && fill_due(&wait)) {
			return true;
		}
		look_at_opcache(&wait);
		if (poll(polled, 2, wait) < 0 && errno != EINTR) {
			break;
		}
		if (polled[1].revents & POLLIN) {
			struct signalfd_siginfo info;
			while (read(signals, &info, sizeof(info)) == sizeof(info)) {
			}
		}
		reap();
		if (polled[0].revents) {
			char text[32];
			ssize_t len = recv(SURUS_FD_CONTROL, text, sizeof(text) - 1, MSG_DONTWAIT);
			if (len == 0 || (len < 0 && errno != EAGAIN && errno != EINTR)) {
				/* surus is gone: nobody is left who waits for an answer. */
				end_workers();
				return false;
			}
			if (len > 0) {
				text[len] = '\0';
				if (strcmp(text, "retire") == 0) {
					/* surus has closed the inbox; the workers end when they have emptied it. */
					retiring = true;
					emptied = false;
				} else if (strcmp(text, "renew") == 0) {
					renew_workers();
				}
			}
		}
	}
	return false;
}

/* While PHP starts, nobody looks at the control socket: the application's own code may run
 * (preloading, in a process of its own at that) and may hang. A surus that is gone, or has given
 * up, ends all of us; the process group is ours. */
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
		on_control(SIGIO); /* it may have gone before we asked to be told */
	} else {
		sigaction(SIGIO, &action, NULL);
	}
}

bool surus_template_prepare(void)
{
	places = calloc(surus_settings.workers, sizeof(*places));
	return places != NULL;
}

void surus_template_php_starts(void)
{
	watch_control(true);
}

void surus_template_php_started(void)
{
	surus_report(report, sizeof(report));
}

bool surus_template_serve(void)
{
	sigset_t ended;

	watch_control(false);
	surus_signals_keep();
	sigemptyset(&ended);
	sigaddset(&ended, SIGCHLD);
	signals = signalfd(-1, &ended, SFD_CLOEXEC | SFD_NONBLOCK);
	tell(report, strlen(report), NULL, 0);
	return run();
}
