/* Preloaded in place of a profiler: a look-up of the service "profiled" leaves a thread running, as
 * a sampling thread does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static void *sample(void *unused)
{
	for (;;) {
		pause();
	}
	return unused;
}

struct servent *getservbyname(const char *name, const char *protocol)
{
	struct servent *(*real)(const char *, const char *);
	pthread_t thread;

	if (strcmp(name, "profiled") == 0) {
		pthread_create(&thread, NULL, sample, NULL);
		return NULL;
	}
	real = (struct servent *(*)(const char *, const char *))dlsym(RTLD_NEXT, "getservbyname");
	return real(name, protocol);
}
