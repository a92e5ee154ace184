/* Detects whether a request makes system calls.
 *
 * If it makes none, the kernel's state of the process is unchanged: descriptors, mappings,
 * children, directory. Then checking that state is skipped, which takes longer than restoring the
 * memory of a small request. The kernel reports the first call by a signal (Linux 5.11, admin-
 * guide/syscall-user-dispatch). */
#include "rewind/syscall_watch.h"

#include <signal.h>
#include <sys/prctl.h>
#include <ucontext.h>

#include "base/persistent_map.h"
#include "base/settings.h"
#include "base/syscall_gate.h"

/* other architectures only since 2025 */
#if defined(PR_SET_SYSCALL_USER_DISPATCH) && defined(__x86_64__)

enum {
	LET_PASS = 0, /* SYSCALL_DISPATCH_FILTER_ALLOW */
	STOP = 1, /* SYSCALL_DISPATCH_FILTER_BLOCK */
	OF_DISPATCH = 2, /* SYS_USER_DISPATCH */
	CALL_LEN = 2, /* bytes of the instruction */
	MOST_PAUSE = 63, /* requests */
};
/* In persistent memory. */
static struct syscall_watch {
	bool is_on, watched, made, forbidden;
	unsigned pause, pause_left; /* requests without a watch, after one that made calls */
} *watch;

static bool possible;

bool surus_syscall_watch_create(void)
{
	watch = surus_persistent_alloc(sizeof(*watch));
	return watch != NULL;
}

/* Makes the call after all, and lets all later calls pass. */
static void on_call(int number, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	if (info->si_code != OF_DISPATCH) {
		/* A seccomp filter rejects the call and wants it to end the process. */
		signal(number, SIG_DFL);
		raise(number);
		return;
	}
	watch->made = true;
	*surus_syscall_gate = LET_PASS;
	registers[REG_RAX] = info->si_syscall;
	registers[REG_RIP] -= CALL_LEN;
}

/* Whether SIGSYS is blocked now or while a handler runs. The kernel would then kill the process. */
static bool may_be_blocked(void)
{
	sigset_t blocked;

	if (sigprocmask(SIG_SETMASK, NULL, &blocked) != 0 || sigismember(&blocked, SIGSYS)) {
		return true;
	}
	for (int number = 1; number <= SIGRTMAX; number++) {
		struct sigaction action;
		if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
		        action.sa_handler != SIG_IGN &&
		    sigismember(&action.sa_mask, SIGSYS)) {
			return true;
		}
	}
	return false;
}

void surus_syscall_watch_prepare(void)
{
	/* SA_NODEFER: once the handler may be interrupted, so may the code that it has interrupted. */
	struct sigaction own = {.sa_sigaction = on_call,
	        .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART}, of_boot;

	sigemptyset(&own.sa_mask);
	possible = sigaction(SIGSYS, NULL, &of_boot) == 0 && of_boot.sa_handler == SIG_DFL &&
	        !may_be_blocked() &&
	           sigaction(SIGSYS, &own, NULL) == 0;
}

static bool turn(bool on)
{
	if (watch->is_on == on) {
		return true;
	}
	bool done = prctl(PR_SET_SYSCALL_USER_DISPATCH, on ? PR_SYS_DISPATCH_ON : PR_SYS_DISPATCH_OFF,
	        0L, 0L, on ? surus_syscall_gate : NULL) == 0;
	watch->is_on = done && on;
	return done;
}

void surus_syscall_watch_begin(void)
{
	watch->watched = false;
	if (!possible || watch->forbidden) {
		return;
	}
	if (watch->pause_left > 0) {
		watch->pause_left--;
		return;
	}
	if (!turn(true)) {
		watch->forbidden = true;
		return;
	}
	watch->made = false;
	watch->watched = true;
	*surus_syscall_gate = STOP;
}

bool surus_syscall_watch_end(void)
{
	*surus_syscall_gate = LET_PASS;
	if (!watch->watched) {
		return false;
	}
	watch->watched = false;
	if (!watch->made) {
		watch->pause /= 2;
		return true;
	}
	/* A report costs about as much as a skipped check saves, and calls cost a little more while
	 * watched. So an application that usually makes calls is watched ever less often. */
	watch->pause = watch->pause * 2 + 1 < MOST_PAUSE ? watch->pause * 2 + 1 : MOST_PAUSE;
	watch->pause_left = surus_settings.verify_restore ? 0 : watch->pause;
	turn(false);
	return false;
}

#else

bool surus_syscall_watch_create(void)
{
	return true;
}

void surus_syscall_watch_prepare(void)
{
}

void surus_syscall_watch_begin(void)
{
}

bool surus_syscall_watch_end(void)
{
	return false;
}

#endif
