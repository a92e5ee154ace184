/* Defines functions of FrankenPHP that php-fpm lacks; its request loop is in app/serve.c. */
#include "php/frankenphp.h"

#include <string.h>

#include <php.h>
#include <SAPI.h>

ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_response_headers, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()

static void add_header(void *data, void *array)
{
	sapi_header_struct *header = data;
	const char *colon = memchr(header->header, ':', header->header_len);
	size_t name = colon ? (size_t)(colon - header->header) : 0, value = name + 1;

	while (name > 0 && (header->header[name - 1] == ' ' || header->header[name - 1] == '\t')) {
		name--;
	}
	if (name == 0) {
		return;
	}
	while (value < header->header_len && (header->header[value] == ' ' ||
	        header->header[value] == '\t')) {
		value++;
	}
	zend_string *key = zend_string_init(header->header, name, 0);
	zval text;
	ZVAL_STRINGL(&text, header->header + value, header->header_len - value);
	zend_symtable_update(Z_ARRVAL_P((zval *)array), key, &text);
	zend_string_release(key);
}

/* apache_response_headers(): array. The headers that the script has set so far. */
static PHP_FUNCTION(apache_response_headers)
{
	ZEND_PARSE_PARAMETERS_NONE();
	array_init(return_value);
	zend_llist_apply_with_argument(&SG(sapi_headers).headers, add_header, return_value);
}

static const zend_function_entry response_headers[] = {
	PHP_FE(apache_response_headers, arginfo_response_headers)
	PHP_FALIAS(frankenphp_response_headers, apache_response_headers, arginfo_response_headers)
	PHP_FE_END
};

bool surus_frankenphp_register(int type)
{
	return zend_register_functions(NULL, response_headers, NULL, type) == SUCCESS;
}
