/* The least server of two processes: reads no HTTP and runs no PHP.
 *
 * A request for PHP goes to the other process and back through a socket pair. Every other request
 * is answered at once, with the same bytes. One connection at a time. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const char ANSWER[] =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
        "17\r\n\r\n{\"hello\":\"world\"}";
static char bytes[4096];

static void give(int fd)
{
	if (send(fd, ANSWER, sizeof(ANSWER) - 1, MSG_NOSIGNAL) < 0) {
		perror("send");
	}
}

static void watch(int epoll, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
		perror("epoll_ctl");
		exit(1);
	}
}

int main(int count, char **words)
{
	const int one = 1;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0), client = -1, pair[2];

	address.sin_port = htons((uint16_t)atoi(count > 1 ? words[1] : "0"));
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
	        listen(listener, 16) != 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) {
		perror("cannot listen");
		return 1;
	}
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "bare worker");
		while (recv(pair[1], bytes, sizeof(bytes), 0) > 0) {
			give(pair[1]);
		}
		return 0;
	}
	watch(epoll, listener);
	watch(epoll, pair[0]);
	for (;;) {
		struct epoll_event event;
		if (epoll_wait(epoll, &event, 1, -1) != 1) {
			continue;
		}
		if (event.data.fd == listener) {
			client = accept(listener, NULL, NULL);
			setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
			watch(epoll, client);
			continue;
		}
		ssize_t length = recv(event.data.fd, bytes, sizeof(bytes) - 1, 0);
		if (length <= 0) {
			close(event.data.fd);
			continue;
		}
		bytes[length] = '\0';
		if (event.data.fd == pair[0]) {
			send(client, bytes, (size_t)length, MSG_NOSIGNAL);
		} else if (strstr(bytes, ".php ")) {
			send(pair[0], bytes, (size_t)length, 0);
		} else {
			give(event.data.fd);
		}
	}
}
