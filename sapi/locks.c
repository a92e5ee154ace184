/* Locks that an event holds on what the boot has opened: released as they are when a process ends, before the event's end is told. */
#include "snapshot.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <php.h>

/* Put back with all other memory. */
static bool may_hold_flock;
static struct {
	int fd;
	bool records; /* a library has opened it, which may lock records of it (fcntl), as SQLite does */
} files[SURUS_DESCRIPTORS * 8];
static size_t count;

static zif_handler plain_flock, plain_flock_of_object;

static ZEND_FUNCTION(surus_flock)
{
	may_hold_flock = true;
	plain_flock(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

/* SplFileObject::flock() */
static ZEND_FUNCTION(surus_flock_of_object)
{
	may_hold_flock = true;
	plain_flock_of_object(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static void hook(HashTable *functions, const char *name, zif_handler *plain, zif_handler ours)
{
	zend_function *function = zend_hash_str_find_ptr(functions, name, strlen(name));

	if (function && function->type == ZEND_INTERNAL_FUNCTION && function->internal_function.handler != ours) {
		*plain = function->internal_function.handler;
		function->internal_function.handler = ours;
	}
}

void surus_locks_watch(void)
{
	zend_class_entry *class, *file_object = zend_hash_str_find_ptr(CG(class_table), ZEND_STRL("splfileobject"));

	hook(CG(function_table), "flock", &plain_flock, ZEND_FN(surus_flock));
	/* Those of classes that inherit a method too: each has a copy. */
	ZEND_HASH_FOREACH_PTR(CG(class_table), class) {
		if (file_object && instanceof_function(class, file_object)) {
			hook(&class->function_table, "flock", &plain_flock_of_object, ZEND_FN(surus_flock_of_object));
		}
	} ZEND_HASH_FOREACH_END();
}

void surus_locks_note(int fd, const struct stat *file)
{
	files[count].fd = fd;
	/* PHP itself knows no lock but flock(). */
	files[count].records = S_ISREG(file->st_mode) && !surus_stream_of(fd);
	count++;
}

void surus_locks_release(void)
{
	struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

	for (size_t i = 0; i < count; i++) {
		if (files[i].records) {
			fcntl(files[i].fd, F_SETLK, &all);
		}
		if (may_hold_flock) {
			flock(files[i].fd, LOCK_UN);
		}
	}
	may_hold_flock = false;
}
