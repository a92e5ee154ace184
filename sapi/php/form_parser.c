/* Parses forms of requests other than POST, which PHP does not parse; as request_parse_body() of
 * PHP 8.4. */
#include "php/form_parser.h"

#include <string.h>

#include <php.h>
#include <SAPI.h>
#include <php_variables.h>

#include "base/scoreboard_layout.h"

static const char multipart[] = "multipart/form-data";

bool surus_form_read(struct _zval_struct *fields, struct _zval_struct *files)
{
	const char *type = SG(request_info).content_type;
	sapi_post_entry *entry = zend_hash_str_find_ptr(&SG(known_post_content_types), multipart,
	        sizeof(multipart) - 1);
	/* Extensions that filter input write to these arrays, whatever array they are given. */
	zval *post = &PG(http_globals)[TRACK_VARS_POST], *uploads =
	        &PG(http_globals)[TRACK_VARS_FILES], before[2];

	/* The body can be read once. */
	if (!entry || !type || strncasecmp(type, multipart, sizeof(multipart) - 1) != 0 ||
	        SG(rfc1867_uploaded_files) || SG(read_post_bytes) > 0) {
		return false;
	}
	ZVAL_COPY_VALUE(&before[0], post);
	ZVAL_COPY_VALUE(&before[1], uploads);
	array_init(post);
	array_init(uploads);
	SG(request_info).post_entry = entry;
	SG(request_info).content_type_dup = estrdup(type);
	sapi_handle_post(post);
	ZVAL_COPY_VALUE(fields, post);
	ZVAL_COPY_VALUE(files, uploads);
	ZVAL_COPY_VALUE(post, &before[0]);
	ZVAL_COPY_VALUE(uploads, &before[1]);
	return true;
}
