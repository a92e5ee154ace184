/* Restores the stream wrappers of the boot after each request (`worker`). Wrappers of other
 * protocols stay, as do the services that have registered them. */
#include "php/stream_wrappers.h"

#include <php.h>
#include <SAPI.h>
#include <php_streams.h>
#include <ext/standard/file.h>

static HashTable boots; /* protocol -> wrapper */
/* the type of their resources, which only PHP holds (php/get_resources.c) */
static int factory = -1;

/* A script's wrapper refers to itself. */
bool surus_wrapper_is_userland(const php_stream_wrapper *wrapper)
{
	return wrapper->abstract == wrapper;
}

void surus_wrappers_save(void)
{
	factory = zend_fetch_list_dtor_id("stream factory");
	zend_hash_init(&boots, 32, NULL, NULL, 0);
	zend_hash_copy(&boots, php_stream_get_url_stream_wrappers_hash(), NULL);
}

bool surus_wrapper_is_resource(const zend_resource *resource)
{
	return resource->type == factory;
}

static bool contains(HashTable *wrappers, const void *wrapper)
{
	const void *other;

	ZEND_HASH_FOREACH_PTR(wrappers, other) {
		if (other == wrapper) {
			return true;
		}
	} ZEND_HASH_FOREACH_END();
	return false;
}

static uint32_t count_streams(const void *wrapper)
{
	const zend_resource *resource;
	uint32_t count = 0;

	ZEND_HASH_FOREACH_PTR(&EG(regular_list), resource) {
		const php_stream *stream = resource->ptr;
		count += stream && resource->type == php_file_le_stream() && stream->wrapper == wrapper;
	} ZEND_HASH_FOREACH_END();
	return count;
}

/* PHP frees a wrapper with its resource, to which the table and each stream have a reference; so
 * has `boots`. stream_wrapper_restore() does not release the table's reference and leaks one per
 * call. */
static void free_unused(void)
{
	HashTable *list = &EG(regular_list);

	for (uint32_t i = list->nNumUsed; i-- > 0;) {
		zval *slot = ZEND_HASH_ELEMENT(list, i);
		zend_resource *resource = Z_TYPE_P(slot) == IS_UNDEF ? NULL : Z_PTR_P(slot);

		if (!resource || !surus_wrapper_is_resource(resource)) {
			continue;
		}
		if (contains(&boots, resource->ptr)) {
			GC_SET_REFCOUNT(resource, 2 + count_streams(resource->ptr));
		} else if (GC_REFCOUNT(resource) == 1 && !contains(FG(stream_wrappers), resource->ptr) &&
		           count_streams(resource->ptr) == 0) {
			zend_list_delete(resource);
		}
	}
}

void surus_wrappers_restore(void)
{
	zend_string *protocol;
	void *wrapper;

	if (!FG(stream_wrappers)) {
		return; /* no script has changed a wrapper */
	}
	ZEND_HASH_FOREACH_STR_KEY_PTR(&boots, protocol, wrapper) {
		if (zend_hash_find_ptr(FG(stream_wrappers), protocol) != wrapper) {
			zend_hash_update_ptr(FG(stream_wrappers), protocol, wrapper);
		}
	} ZEND_HASH_FOREACH_END();
	free_unused();
}
