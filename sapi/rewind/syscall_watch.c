/* Does an event make system calls? One that makes none has changed nothing that the kernel keeps
 * for its process: no descriptor, no mapping, no child, no directory. Then nothing of that has to
 * be looked at when it ends, which takes longer than to put back the memory of a small request. The
 * kernel tells of the first call by a signal (Linux 5.11, admin-guide/syscall-user-dispatch). */
#include "rewind/syscall_watch.h"

#include <signal.h>
#include <sys/prctl.h>
#include <ucontext.h>

#include "base/persistent_map.h"
#include "base/settings.h"
#include "base/syscall_gate.h"

/* elsewhere kernels learn it only now, since 2025 */
#if defined(PR_SET_SYSCALL_USER_DISPATCH) && defined(__x86_64__)

enum {
	LET_PASS = 0, /* SYSCALL_DISPATCH_FILTER_ALLOW */
	STOP = 1,     /* SYSCALL_DISPATCH_FILTER_BLOCK */
	OF_DISPATCH = 2, /* SYS_USER_DISPATCH */
	CALL_LEN = 2,    /* bytes of the instruction */
	MOST_PAUSE = 63, /* events */
};
/* Not restored by a rewind. */
static struct syscall_watch {
	bool is_on, watched, made, forbidden;
	unsigned pause, pause_left; /* events that are not watched, after one that has made calls */
} *watch;

static bool possible;

bool surus_calls_create(void)
{
	watch = surus_persistent_alloc(sizeof(*watch));
	return watch != NULL;
}

/* Lets the call be made after all, and all that follow. */
static void on_call(int number, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	if (info->si_code != OF_DISPATCH) {
		/* A filter forbids the call (seccomp), and wants it to end the process. */
		signal(number, SIG_DFL);
		raise(number);
		return;
	}
	watch->made = true;
	*surus_syscall_gate = LET_PASS;
	registers[REG_RAX] = info->si_syscall;
	registers[REG_RIP] -= CALL_LEN;
}

/* Is the signal blocked now, or while a handler runs? To be told of a call then is to be killed. */
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

void surus_calls_prepare(void)
{
	/* As soon as the handler may be interrupted by others, so may what it has interrupted. */
	struct sigaction ours = {.sa_sigaction = on_call,
	        .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART}, of_boot;

	sigemptyset(&ours.sa_mask);
	possible = sigaction(SIGSYS, NULL, &of_boot) == 0 && of_boot.sa_handler == SIG_DFL &&
	        !may_be_blocked() &&
	           sigaction(SIGSYS, &ours, NULL) == 0;
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

void surus_calls_watch(void)
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

bool surus_calls_none(void)
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
	/* To be told costs about as much as is spared where there is nothing to tell, and calls cost a
	 * little more meanwhile. So an application that makes some in most of its events is asked ever
	 * less. */
	watch->pause = watch->pause * 2 + 1 < MOST_PAUSE ? watch->pause * 2 + 1 : MOST_PAUSE;
	watch->pause_left = surus_settings.verify_restore ? 0 : watch->pause;
	turn(false);
	return false;
}

#else

bool surus_calls_create(void)
{
	return true;
}

void surus_calls_prepare(void)
{
}

void surus_calls_watch(void)
{
}

bool surus_calls_none(void)
{
	return false;
}

#endif
