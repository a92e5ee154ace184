/* For builds under AddressSanitizer only: lets PHP load its extensions. Distributions build PHP
 * such that it loads them with RTLD_DEEPBIND, which the sanitizer refuses, for it would miss what
 * they allocate. */
#include <dlfcn.h>

#ifdef __SANITIZE_ADDRESS__

void *dlopen(const char *file, int mode)
{
	void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");

	return next(file, mode & ~RTLD_DEEPBIND);
}

#endif
