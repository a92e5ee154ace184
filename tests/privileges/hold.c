/* Holds a process as a debugger does: hold PID [exit]. With `exit`, a process that is killed does
 * not exit either, until this program ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int count, char **words)
{
	pid_t held = count > 1 ? atoi(words[1]) : 0;
	/* It stops once more before it exits (ptrace(2)). */
	long options = count > 2 ? PTRACE_O_TRACEEXIT : 0;
	int status;

	if (held <= 0 || ptrace(PTRACE_SEIZE, held, NULL, (void *)options) != 0 ||
	        ptrace(PTRACE_INTERRUPT, held, NULL, NULL) != 0 || waitpid(held, &status, 0) != held) {
		perror("hold");
		return 1;
	}
	puts("held");
	fflush(stdout);
	/* It stays stopped, because nothing continues it. */
	while (waitpid(held, &status, 0) == held) {
		if (WIFEXITED(status) || WIFSIGNALED(status)) {
			return 0;
		}
	}
	perror("hold");
	return 1;
}
