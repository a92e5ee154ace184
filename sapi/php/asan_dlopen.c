/* Replaces dlopen() in builds with AddressSanitizer, so that PHP can load extensions.
 *
 * Distributions build PHP to use RTLD_DEEPBIND, which the sanitizer rejects because it would miss
 * their allocations. */
#include <dlfcn.h>

#ifdef __SANITIZE_ADDRESS__

void *dlopen(const char *file, int mode)
{
	void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");

	return next(file, mode & ~RTLD_DEEPBIND);
}

#endif
