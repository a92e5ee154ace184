/* The kernel's random numbers as a copy of a machine sees them. Each depends on the content of the
 * file $ENTROPY, and on how many there have been in this process and those that it comes from. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static uint64_t count;

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
	const char *name = getenv("ENTROPY");
	uint64_t state = ++count;
	char text[32];
	int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	ssize_t len = file < 0 ? -1 : read(file, text, sizeof(text));

	(void)flags;
	if (len <= 0) {
		abort();
	}
	close(file);
	for (ssize_t i = 0; i < len; i++) {
		state = (state ^ (unsigned char)text[i]) * 0x100000001b3;
	}
	for (size_t i = 0; i < length; i++) {
		state += 0x9e3779b97f4a7c15;
		uint64_t mixed = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
		mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
		((unsigned char *)buffer)[i] = (unsigned char)(mixed >> 56);
	}
	return (ssize_t)length;
}
