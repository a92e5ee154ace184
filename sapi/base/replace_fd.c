/* Makes a descriptor lead somewhere else. */
#include "base/replace_fd.h"

#include <fcntl.h>
#include <unistd.h>

void surus_fd_replace(int fd, int own)
{
	int flags = fcntl(fd, F_GETFD);

	dup2(own, fd);
	fcntl(fd, F_SETFD, flags);
	close(own);
}
