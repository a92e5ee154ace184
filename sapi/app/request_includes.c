/* Counts the files that a request includes: classes, templates and settings that PHP had not loaded
 * when the request began, which a warmer boot could have loaded. */
#include "app/request_includes.h"

#include <php.h>

static uint32_t before; /* files that were included when the request began */

void surus_request_includes_begin(void)
{
	before = zend_hash_num_elements(&EG(included_files));
}

uint32_t surus_request_includes_count(void)
{
	uint32_t now = zend_hash_num_elements(&EG(included_files));

	return now > before ? now - before : 0;
}
