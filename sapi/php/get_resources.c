/* Replaces get_resources() on `worker`: hides resources that PHP itself holds by a pointer.
 *
 * A script that closes or keeps such a resource would leave a dangling pointer, or an entry of the
 * list for each request. */
#include "php/get_resources.h"

#include <php.h>
#include <SAPI.h>
#include <ext/standard/file.h>

#include "php/stream_wrappers.h"

static zif_handler plain;

static bool is_of_body(const php_stream *stream)
{
	for (; stream; stream = stream->enclosing_stream) {
		if (stream == SG(request_info).request_body) {
			return true;
		}
	}
	return false;
}

bool surus_resource_is_internal(const zend_resource *resource)
{
	bool is_stream = resource->type == php_file_le_stream();

	return (is_stream && is_of_body(resource->ptr)) || surus_wrapper_is_resource(resource) ||
	       (FG(default_context) && resource == FG(default_context)->res);
}

static int hide(zval *value)
{
	bool is_internal = surus_resource_is_internal(Z_RES_P(value));

	return is_internal ? ZEND_HASH_APPLY_REMOVE : ZEND_HASH_APPLY_KEEP;
}

static ZEND_FUNCTION(surus_get_resources)
{
	plain(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (Z_TYPE_P(return_value) == IS_ARRAY) {
		zend_hash_apply(Z_ARRVAL_P(return_value), hide);
	}
}

void surus_get_resources_install(void)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table),
	        ZEND_STRL("get_resources"));

	if (function && function->type == ZEND_INTERNAL_FUNCTION) {
		plain = function->internal_function.handler;
		function->internal_function.handler = ZEND_FN(surus_get_resources);
	}
}
