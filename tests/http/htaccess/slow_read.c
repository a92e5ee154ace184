/* Preloaded: reads of files below a directory (HELD_DIRECTORY) wait until a file (HOLD) is removed,
 * and create another (HELD) before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *directory, *hold, *held;
static ssize_t (*real_read)(int, void *, size_t);

static __attribute__((constructor)) void begin(void)
{
	directory = getenv("HELD_DIRECTORY");
	hold = getenv("HOLD");
	held = getenv("HELD");
	real_read = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
}

ssize_t read(int fd, void *buffer, size_t len)
{
	char link[64], name[4096];

	if (directory && hold && held && access(hold, F_OK) == 0) {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		ssize_t size = readlink(link, name, sizeof(name));
		if (size > (ssize_t)strlen(directory) &&
		        memcmp(name, directory, strlen(directory)) == 0) {
			close(open(held, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
			while (access(hold, F_OK) == 0) {
				usleep(5000);
			}
		}
	}
	return real_read(fd, buffer, len);
}
