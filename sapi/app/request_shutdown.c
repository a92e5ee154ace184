/* Ends a request as PHP does, but keeps what the boot has made for later requests. The order is
 * that of php_request_shutdown() (main/main.c). */
#include "app/request_shutdown.h"

#include <string.h>

#include <unistd.h>

#include <php.h>
#include <SAPI.h>
#include <php_main.h>
#include <php_output.h>
#include <ext/standard/basic_functions.h>
#include <zend_closures.h>
#include <zend_fibers.h>
#include <zend_weakrefs.h>

#include "app/request_includes.h"
#include "base/process_state.h"
#include "base/scoreboard_layout.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "php/boot_objects.h"
#include "php/execution_time.h"
#include "php/request_extensions.h"
#include "rewind/kernel/file_locks.h"

/* extensions whose request shutdown does more than change memory; NULL-terminated */
static zend_module_entry **extensions;

/* Extensions whose request shutdown only frees and resets memory (reviewed in PHP 8.2 to 8.4). Here
 * memory is restored or ends with the process, so calling them would only cost time and touch
 * pages. All other extensions are shut down. */
static const char *const memory_only[] = {
	"date",    "pcre",   "spl", "standard", "filter", "mbstring", "mysqlnd", "intl",
	"libxml",  "ffi",    "gd",  "phar",     "zlib",   "sockets",  "pcntl",   "tokenizer",
	"core",    "random", "hash", "json",    "reflection", "ctype", "apcu",   "zend opcache",
};

static bool is_memory_only(const char *name)
{
	for (size_t i = 0; i < sizeof(memory_only) / sizeof(*memory_only); i++) {
		if (strcasecmp(name, memory_only[i]) == 0) {
			return true;
		}
	}
	return false;
}

static bool has_destructor(const zend_object *object)
{
	return object->handlers->dtor_obj != zend_objects_destroy_object || object->ce->destructor;
}

/* Whether freeing the object does more than free memory. Freeing a closure does not. */
static bool has_storage(const zend_object *object)
{
	return object->handlers->free_obj != zend_object_std_dtor && object->ce != zend_ce_closure;
}

void surus_request_shutdown_save(void)
{
	zend_module_entry *extension;
	size_t count = 0;

	surus_boot_objects_save();
	extensions = pecalloc(zend_hash_num_elements(&module_registry) + 1, sizeof(*extensions), 1);
	ZEND_HASH_REVERSE_FOREACH_PTR(&module_registry, extension) {
		if (extension->request_shutdown_func && !is_memory_only(extension->name)) {
			extensions[count++] = extension;
		}
	} ZEND_HASH_FOREACH_END();
}

/* The first step of PHP's shutdown_destructors(): objects that only a global variable refers to are
 * destroyed first, the last variable first. */
static int destroy_last_of(zval *variable)
{
	zval *value = Z_TYPE_P(variable) == IS_INDIRECT ? Z_INDIRECT_P(variable) : variable;

	if (Z_TYPE_P(value) != IS_OBJECT || Z_REFCOUNT_P(value) != 1 ||
	        surus_boot_objects_has(Z_OBJ_P(value))) {
		return ZEND_HASH_APPLY_KEEP;
	}
	if (value == variable) {
		return ZEND_HASH_APPLY_REMOVE;
	}
	/* The variable no longer exists when the destructor runs. */
	zval destroyed;
	ZVAL_COPY_VALUE(&destroyed, value);
	ZVAL_UNDEF(value);
	zval_ptr_dtor(&destroyed);
	return ZEND_HASH_APPLY_REMOVE;
}

static void destroy_globals(void)
{
	for (uint32_t before = 0, now; (now = zend_hash_num_elements(&EG(symbol_table))) != before;
	        before = now) {
		zend_hash_reverse_apply(&EG(symbol_table), destroy_last_of);
	}
}

static bool needs_destruction(zend_object *object)
{
	return IS_OBJ_VALID(object) && has_destructor(object) &&
	        !(OBJ_FLAGS(object) & IS_OBJ_DESTRUCTOR_CALLED) && !surus_boot_objects_has(object);
}

/* Without destructors, the order of destruction has no effect, and objects vanish with the
 * memory. */
static bool any_needs_destruction(void)
{
	for (uint32_t i = surus_boot_objects_first_slot(); i < EG(objects_store).top; i++) {
		if (needs_destruction(EG(objects_store).object_buckets[i])) {
			return true;
		}
	}
	return false;
}

/* As zend_objects_store_call_destructors(), which would also run the boot's destructors and mark
 * every object, touching all pages of objects. */
static void call_destructors(void)
{
	zend_objects_store *store = &EG(objects_store);

	/* Objects that destructors make get higher slots, and are destructed in turn. */
	EG(flags) |= EG_FLAGS_OBJECT_STORE_NO_REUSE;
	for (uint32_t i = surus_boot_objects_first_slot(); i < store->top; i++) {
		zend_object *object = store->object_buckets[i];
		if (needs_destruction(object)) {
			GC_ADD_FLAGS(object, IS_OBJ_DESTRUCTOR_CALLED);
			GC_ADDREF(object);
			object->handlers->dtor_obj(object);
			GC_DELREF(object);
		}
	}
}

/* As zend_objects_store_free_object_storage(): closes connections, writes archives. */
static void free_storage(void)
{
	zend_objects_store *store = &EG(objects_store);

	for (uint32_t i = store->top, first = surus_boot_objects_first_slot(); i-- > first;) {
		zend_object *object = store->object_buckets[i];
		if (IS_OBJ_VALID(object) && has_storage(object) &&
		        !(OBJ_FLAGS(object) & IS_OBJ_FREE_CALLED) && !surus_boot_objects_has(object)) {
			GC_ADD_FLAGS(object, IS_OBJ_FREE_CALLED);
			GC_ADDREF(object);
			object->handlers->free_obj(object);
		}
	}
}

static void close_resources(void)
{
	HashTable *list = &EG(regular_list);

	/* Closing a resource may move the table, so each slot is looked up again. */
	for (uint32_t i = list->nNumUsed; i-- > 0;) {
		zval *slot = ZEND_HASH_ELEMENT(list, i);
		if (Z_TYPE_P(slot) != IS_UNDEF) {
			zend_resource *resource = Z_PTR_P(slot);
			if (resource->handle < surus_boot_first_resource()) {
				break;
			}
			zend_list_close(resource);
		}
	}
	/* A persistent connection cannot outlive its request here, because the restored process would
	 * not know it. */
	for (uint32_t i = EG(persistent_list).nNumUsed; i-- > surus_boot_persistent_slots();) {
		Bucket *bucket = EG(persistent_list).arData + i;
		if (Z_TYPE(bucket->val) != IS_UNDEF) {
			zend_hash_del_bucket(&EG(persistent_list), bucket);
		}
	}
}

/* Releases locks of OPcache that a fatal error has left, because other processes wait for them. */
static void unlock_opcache(void)
{
	zend_module_entry *opcache = zend_hash_str_find_ptr(&module_registry, "zend opcache",
	        sizeof("zend opcache") - 1);

	if (opcache && opcache->post_deactivate_func) {
		opcache->post_deactivate_func();
	}
}

void surus_request_shutdown(void)
{
	EG(flags) |= EG_FLAGS_IN_SHUTDOWN;
	/* As php_request_shutdown(): an uncaught exception from here on is an error and must not reach
	 * the caller. */
	EG(current_execute_data) = NULL;
#ifdef ZEND_HAS_OOM
	/* After memory_limit was reached, PHP calls no function until the script has ended, and this
	 * script does not end. */
	EG(delayed_oom).state = ZEND_OOM_STATE_NONE;
#endif
	php_call_shutdown_functions();
	zend_try {
		if (any_needs_destruction()) {
			destroy_globals();
			call_destructors();
		}
	} zend_end_try();
	zend_try {
		php_output_end_all();
	} zend_end_try();
	surus_execution_time_end();
	for (size_t i = 0; extensions[i]; i++) {
		surus_extension_shutdown(extensions[i]);
	}
	zend_try {
		php_output_deactivate();
	} zend_end_try();
	zend_try {
		free_storage();
		close_resources();
	} zend_end_try();
	if (EG(timeout_seconds) != SURUS_NO_LIMIT) {
		/* A session handler or a stream has called set_time_limit(). */
		surus_execution_time_end();
	}
	if (CG(unclean_shutdown)) {
		unlock_opcache();
	}
	/* Removes the files of uploads. */
	sapi_deactivate();
	if (surus_process->child) {
		/* The locks belong to the worker. */
		/* _exit(): the exit handlers of libraries belong to the worker */
		_exit(EG(exit_status));
	}
	surus_locks_release();
	surus_outbox_end(SURUS_COMPLETE, surus_request_includes_count());
	surus_request_close(surus_request);
}
