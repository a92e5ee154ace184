/* Preloaded into processes that rewind: fails or kills once, in a function that only a restore
 * uses.
 *
 * A file says where and how. `fchdir kill`: where descriptors and directory have been restored,
 * kills the process by SIGKILL; `fchdir segv`: by SIGSEGV; `fchdir fail`: returns an error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static char file[4096];
static void (*real_longjmp)(jmp_buf, int);

static __attribute__((constructor)) void begin(void)
{
	const char *name = getenv("FAULTY_FILE");

	real_longjmp = (void (*)(jmp_buf, int))dlsym(RTLD_NEXT, "_longjmp");
	if (name && strlen(name) < sizeof(file)) {
		strcpy(file, name);
	}
}

/* As syscall(), but without errno: that is memory, and would be another than before where it has
 * been restored already. */
static long call(long number, long a, long b, long c)
{
#ifdef __x86_64__
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11",
	        "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") =
	        b, x2 __asm__("x2") = c;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
#endif
}

/* True where the call is to fail. By system calls alone: memory is at stake. */
static int strikes(const char *here)
{
	char text[64] = {0};
	size_t len = strlen(here);
	long fd = *file ? call(SYS_openat, AT_FDCWD, (long)file, O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0) {
		return 0;
	}
	call(SYS_read, fd, (long)text, sizeof(text) - 1);
	call(SYS_close, fd, 0, 0);
	if (strncmp(text, here, len) != 0 || text[len] != ' ') {
		return 0;
	}
	/* The process that removes it has it. */
	if (call(SYS_unlinkat, AT_FDCWD, (long)file, 0) != 0) {
		return 0;
	}
	if (strcmp(text + len + 1, "kill") == 0) {
		syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
	}
	if (strcmp(text + len + 1, "segv") == 0) {
		*(volatile int *)8 = 0;
	}
	return 1;
}

/* The last but one of what is restored in the kernel. */
int fchdir(int fd)
{
	return strikes("fchdir") ? -1 : (int)syscall(SYS_fchdir, fd);
}

/* Before the written pages are looked for, and once more when they have got their bytes. */
int getrusage(__rusage_who_t who, struct rusage *usage)
{
	return strikes("getrusage") ? -1 : (int)syscall(SYS_getrusage, who, usage);
}

/* The written pages, and the size of the address space. */
ssize_t pread(int fd, void *buffer, size_t len, off_t offset)
{
	return strikes("pread") ? -1 : syscall(SYS_pread64, fd, buffer, len, offset);
}
ssize_t pread64(int fd, void *buffer, size_t len, off_t offset)
{
	return pread(fd, buffer, len, offset);
}

/* The very end: memory is back, but for where it goes on. */
void _longjmp(jmp_buf there, int value)
{
	strikes("longjmp");
	real_longjmp(there, value);
	__builtin_unreachable();
}
