/* Finds objects and resources of the boot whose contents PHP does not show. */
#include "app/hidden_state.h"

#include <stdio.h>
#include <string.h>

#include <ext/standard/file.h>

#include "app/boot_script.h"

/* Classes whose objects have their own memory, and show all of it or never change. */
static const char *const shown[] = {"ArrayObject", "Closure", "DateTimeImmutable", "DateTimeZone",
	    "SplFixedArray", "WeakReference"};
/* The garbage collector sees nothing in these that has no references to it, such as numbers. */
static const char *const shown_by_calls[] = {"ArrayIterator", "DateInterval", "DateTime",
	    "SplDoublyLinkedList", "SplHeap", "SplMaxHeap", "SplMinHeap", "SplObjectStorage",
	    "SplPriorityQueue", "SplQueue", "SplStack", "WeakMap"};

enum { CONTEXTS = 32 };

static struct {
	zend_long handle;
	zval options; /* a copy */
} contexts[CONTEXTS];
static int context_count;

static char hidden[200];

#define IS_IN(name, list) is_in(name, list, sizeof(list) / sizeof(*(list)))

static bool is_in(const zend_string *name, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (zend_string_equals_cstr(name, list[i], strlen(list[i]))) {
			return true;
		}
	}
	return false;
}

enum surus_contents surus_object_contents(const zend_object *object)
{
	const zend_class_entry *class = object->ce;

	while (class && class->type == ZEND_USER_CLASS) {
		class = class->parent;
	}
	if (!class || (object->handlers->offset == 0 &&
	        object->handlers->free_obj == zend_object_std_dtor)) {
		return SURUS_SHOWN;
	}
	const zend_module_entry *module = class->info.internal.module;
	if (IS_IN(class->name, shown) || (module && strcmp(module->name, "Reflection") == 0)) {
		return SURUS_SHOWN;
	}
	return IS_IN(class->name, shown_by_calls) ? SURUS_SHOWN_BY_CALLS : SURUS_HIDDEN;
}

static void find_hidden_object(void)
{
	for (uint32_t i = 1; i < EG(objects_store).top; i++) {
		const zend_object *object = EG(objects_store).object_buckets[i];
		if (IS_OBJ_VALID(object) && surus_object_contents(object) == SURUS_HIDDEN) {
			snprintf(hidden, sizeof(hidden), "what is in an object of the boot, because PHP does "
			        "not show it (class %s)", ZSTR_VAL(object->ce->name));
			return;
		}
	}
}

/* Whether requests only add to the stream. */
static bool is_log(const php_stream *stream)
{
	static const char *const outputs[] = {"php://output", "php://stderr", "php://stdout"};

	if (stream->mode[0] == 'a' && !strchr(stream->mode, '+')) {
		return true;
	}
	for (size_t i = 0; i < sizeof(outputs) / sizeof(*outputs); i++) {
		if (stream->orig_path && strcmp(stream->orig_path, outputs[i]) == 0) {
			return true;
		}
	}
	return false;
}

static bool is_stream(const zend_resource *resource)
{
	return resource->type == php_file_le_stream() || resource->type == php_file_le_pstream();
}

/* Whether a resource's state can be compared. */
static bool save_resource(const zend_resource *resource)
{
	if (resource->type == php_le_stream_context() && context_count < CONTEXTS) {
		const php_stream_context *context = resource->ptr;
		contexts[context_count].handle = resource->handle;
		ZVAL_DUP(&contexts[context_count++].options, &context->options);
		return true;
	}
	return !resource->ptr || (is_stream(resource) && is_log(resource->ptr));
}

static void name_resource(zend_resource *resource)
{
	const php_stream *stream = is_stream(resource) ? resource->ptr : NULL;
	const char *type = zend_rsrc_list_get_rsrc_type(resource);

	snprintf(hidden, sizeof(hidden), "what is in a resource of the boot (%s%s%s)",
	        type ? type : "?", stream && stream->orig_path ? ", " : "",
	        stream && stream->orig_path ? stream->orig_path : "");
}

void surus_hidden_state_save(void)
{
	zend_resource *resource;

	hidden[0] = '\0';
	context_count = 0;
	surus_boot_script_close();
	find_hidden_object();
	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource) {
		if (!save_resource(resource) && !hidden[0]) {
			name_resource(resource);
		}
	} ZEND_HASH_FOREACH_END();
}

const char *surus_hidden_state_find(void)
{
	if (hidden[0]) {
		return hidden;
	}
	for (int i = 0; i < context_count; i++) {
		zval *slot = zend_hash_index_find(&EG(regular_list), contexts[i].handle);
		const zend_resource *resource = slot ? Z_RES_P(slot) : NULL;
		php_stream_context *context = resource ? resource->ptr : NULL;
		if (!context || !zend_is_identical(&contexts[i].options, &context->options)) {
			return "the options of a stream context";
		}
	}
	return NULL;
}

void surus_hidden_state_free(void)
{
	while (context_count > 0) {
		zval_ptr_dtor(&contexts[--context_count].options);
	}
}
