/* Does an event make system calls? One that makes none has changed nothing that the kernel keeps for its process: no descriptor, no
 * mapping, no child, no directory. Then nothing of that has to be looked at when it ends, which takes longer than to put back the
 * memory of a small request. The kernel tells of the first call by a signal (Linux 5.11, admin-guide/syscall-user-dispatch). */
#include "snapshot.h"

#include <signal.h>
#include <sys/prctl.h>
#include <ucontext.h>

#include "surus.h"

#if defined(PR_SET_SYSCALL_USER_DISPATCH) && defined(__x86_64__) /* elsewhere kernels learn it only now, since 2025 */

enum {
	LET_PASS = 0, /* SYSCALL_DISPATCH_FILTER_ALLOW */
	STOP = 1,     /* SYSCALL_DISPATCH_FILTER_BLOCK */
	OF_DISPATCH = 2, /* SYS_USER_DISPATCH */
	CALL_LEN = 2,    /* bytes of the instruction */
	MOST_PAUSE = 63, /* events */
};
#define CALLS (surus_self->calls)

static bool possible;

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
	CALLS.made = true;
	CALLS.gate = LET_PASS;
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
		if (sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN &&
		    sigismember(&action.sa_mask, SIGSYS)) {
			return true;
		}
	}
	return false;
}

void surus_calls_prepare(void)
{
	/* As soon as the handler may be interrupted by others, so may what it has interrupted. */
	struct sigaction ours = {.sa_sigaction = on_call, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART}, of_boot;

	sigemptyset(&ours.sa_mask);
	possible = sigaction(SIGSYS, NULL, &of_boot) == 0 && of_boot.sa_handler == SIG_DFL && !may_be_blocked() &&
	           sigaction(SIGSYS, &ours, NULL) == 0;
}

static bool turn(bool on)
{
	if (CALLS.is_on == on) {
		return true;
	}
	bool done = prctl(PR_SET_SYSCALL_USER_DISPATCH, on ? PR_SYS_DISPATCH_ON : PR_SYS_DISPATCH_OFF, 0L, 0L, on ? &CALLS.gate : NULL) == 0;
	CALLS.is_on = done && on;
	return done;
}

void surus_calls_watch(void)
{
	CALLS.watched = false;
	if (!possible || CALLS.forbidden) {
		return;
	}
	if (CALLS.pause_left > 0) {
		CALLS.pause_left--;
		return;
	}
	if (!turn(true)) {
		CALLS.forbidden = true;
		return;
	}
	CALLS.made = false;
	CALLS.watched = true;
	CALLS.gate = STOP;
}

bool surus_calls_none(void)
{
	CALLS.gate = LET_PASS;
	if (!CALLS.watched) {
		return false;
	}
	CALLS.watched = false;
	if (!CALLS.made) {
		CALLS.pause /= 2;
		return true;
	}
	/* To be told costs about as much as is spared where there is nothing to tell, and calls cost a little more meanwhile. So an application that
	 * makes some in most of its events is asked ever less. */
	CALLS.pause = CALLS.pause * 2 + 1 < MOST_PAUSE ? CALLS.pause * 2 + 1 : MOST_PAUSE;
	CALLS.pause_left = surus_settings.paranoid ? 0 : CALLS.pause;
	turn(false);
	return false;
}

#else

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
