/* Forgets the archives (ext/phar) that a request has read (`worker`), as PHP does at the end of a
 * request. Otherwise the next request would see their old content. */
#include "php/archives.h"

#include <stdlib.h>
#include <string.h>

#include <php.h>

#include "base/scoreboard_layout.h"
#include "php/request_extensions.h"

static zend_module_entry *phar; /* NULL: not loaded, or the boot uses archives */
static void *unused; /* its globals without a known archive */

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

/* Whether something that survives the request needs archives: objects, streams, or code included
 * from one. */
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

/* The extension opens an archive again when it is needed. */
static void reset_globals(void)
{
	surus_extension_shutdown(phar);
	memcpy(unused, phar->globals_ptr, phar->globals_size);
}

void surus_archives_save(void)
{
	zend_module_entry *found = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("phar"));

	if (!found || !found->globals_ptr || are_held()) {
		return;
	}
	unused = malloc(found->globals_size);
	if (unused) {
		phar = found;
		reset_globals();
	}
}

void surus_archives_close(void)
{
	if (phar && memcmp(unused, phar->globals_ptr, phar->globals_size) != 0 && !are_held()) {
		reset_globals();
	}
}
