/* Releases a request's locks on files and semaphores of the boot before the request ends, as the
 * exit of a process would. */
#include "rewind/kernel/file_locks.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <php.h>

#include "base/procfs.h"
#include "php/boot_objects.h"
#include "php/streams.h"

/* Restored with the memory. */
static bool may_hold_flock;

static struct {
	int fd;
	/* a library has opened it, which may lock records of it (fcntl), as SQLite does */
	bool records;
} files[SURUS_DESCRIPTORS * 8];

static size_t count;

/* Semaphores of the boot (sysvsem), and how often the request has acquired them. PHP releases them
 * with their objects, which persist here. */
static HashTable semaphores;

static zend_function *sem_release;
static zif_handler plain_flock, plain_flock_of_object, plain_acquire, plain_release;

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

static void count_semaphore(zend_execute_data *call, const zval *done, int step)
{
	zval *argument = ZEND_CALL_NUM_ARGS(call) > 0 ? ZEND_CALL_ARG(call, 1) : NULL, none, *times;

	if (Z_TYPE_P(done) == IS_TRUE && argument && Z_TYPE_P(argument) == IS_OBJECT &&
	        surus_boot_objects_has(Z_OBJ_P(argument))) {
		ZVAL_LONG(&none, 0);
		times = zend_hash_index_find(&semaphores, (zend_ulong)(uintptr_t)Z_OBJ_P(argument));
		times = times ? times : zend_hash_index_add_new(&semaphores,
		        (zend_ulong)(uintptr_t)Z_OBJ_P(argument), &none);
		Z_LVAL_P(times) += step;
	}
}

static ZEND_FUNCTION(surus_sem_acquire)
{
	plain_acquire(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	count_semaphore(execute_data, return_value, 1);
}

static ZEND_FUNCTION(surus_sem_release)
{
	plain_release(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	count_semaphore(execute_data, return_value, -1);
}

static void hook(HashTable *functions, const char *name, zif_handler *plain,
        zif_handler replacement)
{
	zend_function *function = zend_hash_str_find_ptr(functions, name, strlen(name));

	if (function && function->type == ZEND_INTERNAL_FUNCTION &&
	        function->internal_function.handler != replacement) {
		*plain = function->internal_function.handler;
		function->internal_function.handler = replacement;
	}
}

void surus_locks_watch(void)
{
	zend_class_entry *class, *file_object =
	        zend_hash_str_find_ptr(CG(class_table), ZEND_STRL("splfileobject"));

	hook(CG(function_table), "flock", &plain_flock, ZEND_FN(surus_flock));
	sem_release = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("sem_release"));
	if (sem_release) {
		zend_hash_init(&semaphores, 8, NULL, NULL, 1);
		hook(CG(function_table), "sem_acquire", &plain_acquire, ZEND_FN(surus_sem_acquire));
		hook(CG(function_table), "sem_release", &plain_release, ZEND_FN(surus_sem_release));
	}
	/* Classes that inherit the method have copies of it. */
	ZEND_HASH_FOREACH_PTR(CG(class_table), class) {
		if (file_object && instanceof_function(class, file_object)) {
			hook(&class->function_table, "flock", &plain_flock_of_object,
			        ZEND_FN(surus_flock_of_object));
		}
	} ZEND_HASH_FOREACH_END();
}

void surus_locks_add(int fd, const struct stat *file)
{
	files[count].fd = fd;
	/* PHP itself uses only flock(). */
	files[count].records = S_ISREG(file->st_mode) && !surus_streams_find(fd);
	count++;
}

static void release_semaphores(void)
{
	zend_ulong object;
	zval *times;

	if (!sem_release || zend_hash_num_elements(&semaphores) == 0) {
		return;
	}
	/* Errors about a semaphore that the request has removed are irrelevant. */
	EG(error_reporting) = EG(user_error_handler_error_reporting) = 0;
	ZEND_HASH_FOREACH_NUM_KEY_VAL(&semaphores, object, times) {
		for (zend_long left = Z_LVAL_P(times);
		        left > 0 && surus_boot_objects_has((zend_object *)(uintptr_t)object); left--) {
			zval argument, released;
			ZVAL_OBJ(&argument, (zend_object *)(uintptr_t)object);
			zend_call_known_function(sem_release, NULL, NULL, &released, 1, &argument, NULL);
		}
	} ZEND_HASH_FOREACH_END();
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
	zend_try {
		release_semaphores();
	} zend_end_try();
}
