/* Archives (ext/phar) that requests of `worker` have read. PHP keeps what it knows of each to the
 * end of its request, and the next one would see that instead of what the file has by then. */
#include "php/archives.h"

#include <stdlib.h>
#include <string.h>

#include <php.h>

#include "base/scoreboard_layout.h"
#include "php/request_extensions.h"

static zend_module_entry *phar; /* NULL: it is not there, or archives stay */
static void *unused;            /* its globals where it knows of no archive */

static bool is_archive(const zend_object *object)
{
	static const char *const classes[] = {"phar", "phardata", "pharfileinfo"};

	for (size_t i = 0; i < sizeof(classes) / sizeof(*classes); i++) {
		const zend_class_entry *class = zend_hash_str_find_ptr(CG(class_table), classes[i],
		        strlen(classes[i]));
		if (class && instanceof_function(object->ce, class)) {
			return true;
		}
	}
	return false;
}

/* Does something that lives on need them: objects, streams, or code that has been included from
 * one? */
static bool are_held(void)
{
	const zend_resource *resource;
	zend_string *file;

	for (uint32_t i = 1; i < EG(objects_store).top; i++) {
		const zend_object *object = EG(objects_store).object_buckets[i];
		if (IS_OBJ_VALID(object) && is_archive(object)) {
			return true;
		}
	}
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource) {
		const php_stream *stream = resource->ptr;
		if (stream && resource->type == php_file_le_stream() &&
		        strncmp(stream->ops->label, "phar", 4) == 0) {
			return true;
		}
	} ZEND_HASH_FOREACH_END();
	ZEND_HASH_FOREACH_STR_KEY(&EG(included_files), file) {
		if (file && (strstr(ZSTR_VAL(file), "phar://") || strstr(ZSTR_VAL(file), ".phar"))) {
			return true;
		}
	} ZEND_HASH_FOREACH_END();
	return false;
}

/* What the extension forgets at the end of a request is made again when it is needed. */
static void forget(void)
{
	surus_shut_down(phar);
	memcpy(unused, phar->globals_ptr, phar->globals_size);
}

void surus_archives_note(void)
{
	zend_module_entry *found = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("phar"));

	if (!found || !found->globals_ptr || are_held()) {
		return;
	}
	unused = malloc(found->globals_size);
	if (unused) {
		phar = found;
		forget();
	}
}

void surus_archives_close(void)
{
	if (phar && memcmp(unused, phar->globals_ptr, phar->globals_size) != 0 && !are_held()) {
		forget();
	}
}
