/* Resets results that PHP's functions keep of the last call (`worker`), as PHP does between
 * requests: errors, the default directory of readdir(), the text of mb_ereg_search(). */
#include "php/last_results.h"

#include <string.h>

#include <php.h>
#include <php_streams.h>
#include <ext/date/php_date.h>
#include <ext/pcre/php_pcre.h>
#include <ext/standard/basic_functions.h>
#include <ext/standard/file.h>

/* NULL: the extension is missing, or disable_functions names the function. */
static zend_function *open_directory, *close_directory, *search;
static const zend_date_globals *dates;
/* The number of the first resource after the boot. */
static zend_ulong first_resource;

static zend_function *find(const char *name)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), name, strlen(name));

	/* An application may define what an extension lacks. */
	return function && function->type == ZEND_INTERNAL_FUNCTION ? function : NULL;
}

/* --- directories --- */

static bool is_directory(const zend_resource *resource)
{
	const php_stream *stream = resource->ptr;

	return resource->type == php_file_le_stream() && stream &&
	       (stream->flags & PHP_STREAM_FLAG_IS_DIR) != 0;
}

/* Whether a directory is open that a request has opened. */
static bool is_any_open(void)
{
	const HashTable *list = &EG(regular_list);

	for (uint32_t i = list->nNumUsed; i-- > 0;) {
		const zval *slot = ZEND_HASH_ELEMENT(list, i);
		if (Z_TYPE_P(slot) == IS_UNDEF) {
			continue;
		}
		const zend_resource *resource = Z_PTR_P(slot);
		if ((zend_ulong)resource->handle < first_resource) {
			return false;
		}
		if (is_directory(resource)) {
			return true;
		}
	}
	return false;
}

/* Drops PHP's reference to the directory that was opened last. Only opendir() can do so: it refers
 * to a new one instead, which closedir() takes back. One that a service keeps stays open. */
static void drop_directory(void)
{
	HashTable *const wrappers = FG(stream_wrappers);
	zval path, opened, result;

	/* A pattern without a match: opens no file, and needs no right to read one. */
	ZVAL_STRING(&path, "glob:///dev/null/none");
	ZVAL_UNDEF(&opened);
	FG(stream_wrappers) = NULL; /* PHP's own, whatever the application has registered */
	zend_call_known_function(open_directory, NULL, NULL, &opened, 1, &path, NULL);
	FG(stream_wrappers) = wrappers;
	if (Z_TYPE(opened) == IS_RESOURCE && close_directory) {
		zend_call_known_function(close_directory, NULL, NULL, &result, 1, &opened, NULL);
		zval_ptr_dtor(&result);
	}
	zval_ptr_dtor(&opened);
	zval_ptr_dtor(&path);
}

/* --- errors --- */

static const zend_date_globals *find_dates(void)
{
	const zend_module_entry *date = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("date"));

	return date && date->globals_size == sizeof(*dates) ? date->globals_ptr : NULL;
}

/* Replaces the errors by those of a correct date, which has none. The extension's own shutdown
 * would also free time zones that objects use. */
static void forget_date_errors(void)
{
	zend_class_entry *class = php_date_get_date_ce();
	zval date, text;

	if (object_init_ex(&date, class) != SUCCESS) {
		return;
	}
	ZVAL_STRING(&text, "2000-01-01 00:00:00 UTC");
	zend_call_known_function(class->constructor, Z_OBJ(date), class, NULL, 1, &text, NULL);
	zval_ptr_dtor(&text);
	zval_ptr_dtor(&date);
}

/* Replaces the text and the pattern. No function takes them back. */
static void forget_search(void)
{
	zval arguments[2], result;

	ZVAL_EMPTY_STRING(&arguments[0]);
	ZVAL_CHAR(&arguments[1], 'a');
	zend_call_known_function(search, NULL, NULL, &result, 2, arguments, NULL);
	zval_ptr_dtor(&result);
}

/* Forgets the results of getlastmod() and getmyinode(), which read the script of a request once. */
static void forget_page(void)
{
	BG(page_uid) = -1;
	BG(page_gid) = -1;
	BG(page_inode) = -1;
	BG(page_mtime) = -1;
}

void surus_last_results_save(void)
{
	open_directory = find("opendir");
	close_directory = find("closedir");
	search = find("mb_ereg_search_init");
	dates = find_dates();
	surus_last_results_reset();
	first_resource = (zend_ulong)EG(regular_list).nNextFreeElement;
}

void surus_last_results_reset(void)
{
	PCRE_G(error_code) = PHP_PCRE_NO_ERROR;
	forget_page();
	if (dates && dates->last_errors) {
		forget_date_errors();
	}
	if (search) {
		forget_search();
	}
	if (open_directory && is_any_open()) {
		drop_directory();
	}
}
