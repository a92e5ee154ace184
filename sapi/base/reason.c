/* Formats why a system call failed. */
#include "base/reason.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *surus_reason(const char *what)
{
	static char text[256];

	snprintf(text, sizeof(text), "%s: %s", what, strerror(errno));
	return text;
}
