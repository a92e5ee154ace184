/* Preloaded: writes below a directory (HELD_DIRECTORY) wait until a file (HOLD) is removed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *directory, *hold;
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);

static __attribute__((constructor)) void begin(void)
{
	directory = getenv("HELD_DIRECTORY");
	hold = getenv("HOLD");
	real_pwrite = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
}

ssize_t pwrite64(int fd, const void *buffer, size_t len, off_t offset)
{
	char link[64], name[4096];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	ssize_t size = readlink(link, name, sizeof(name));
	if (directory && hold && size > (ssize_t)strlen(directory) &&
	        memcmp(name, directory, strlen(directory)) == 0) {
		while (access(hold, F_OK) == 0) {
			usleep(5000);
		}
	}
	return real_pwrite(fd, buffer, len, offset);
}
