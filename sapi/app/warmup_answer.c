/* Runs a warm-up's request and keeps of its response what two of them are compared by. */
#include "app/warmup_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <php.h>
#include <SAPI.h>

#include "app/boot_values.h"
#include "app/request.h"
#include "base/clock_shift.h"
#include "ipc/request_decode.h"
#include "php/sapi_module.h"

static bool runs; /* a warm-up runs now */

/* Of what a fork that tries a warm-up has written. */
static uint64_t hash;
static size_t (*write_on)(const char *data, size_t len);

bool surus_warmup_runs(void)
{
	return runs;
}

static size_t hash_and_write(const char *data, size_t len)
{
	for (size_t at = 0; at < len; at++) {
		hash = (hash ^ (unsigned char)data[at]) * 0x100000001b3; /* FNV-1a */
	}
	return write_on(data, len);
}

void surus_answers_hash_bodies(void)
{
	write_on = sapi_module.ub_write;
	sapi_module.ub_write = hash_and_write;
}

/* Copies Content-Type; empty: PHP's default. */
static void copy_type(char *to, size_t size)
{
	static const char name[] = "Content-Type:";
	zend_llist_position at;
	zend_llist *all = &SG(sapi_headers).headers;

	for (sapi_header_struct *header = zend_llist_get_first_ex(all, &at); header;
	        header = zend_llist_get_next_ex(all, &at)) {
		if (strncasecmp(header->header, name, sizeof(name) - 1) == 0) {
			snprintf(to, size, "%s", header->header + sizeof(name) - 1);
		}
	}
}

/* Whether the boot script restores the boot after the decoded request: its two numbers are equal,
 * as in `3/3`, or 0 in a trial (`0/00`). */
static bool is_last(void)
{
	const char *text = SURUS_VAR(surus_request, "SURUS_WARMUP");
	char *end = NULL;
	unsigned long number = text ? strtoul(text, &end, 10) : 0;

	return end && *end == '/' && strtoul(end + 1, NULL, 10) == number;
}

struct surus_answer surus_answer_ask(zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
	struct surus_answer answer = {.len = surus_php_written()};
	bool must_restore = is_last();

	hash = 0xcbf29ce484222325;
	runs = true;
	surus_boot_values_expect_restore();
	surus_app_request_begin();
	answer.time = sapi_get_request_time();
	answer.survived = surus_app_request_call(handler, cache);
	answer.status = SG(sapi_headers).http_response_code;
	copy_type(answer.type, sizeof(answer.type));
	/* php_error_cb() sets it, also for an uncaught exception, which is no unclean shutdown. */
	bool has_failed = EG(exit_status) == 255;
	if (!surus_app_request_end()) {
		/* The boot script may have restored the boot before, and not ended its clean-up. */
		surus_boot_values_expect_restore();
	}
	has_failed = !has_failed && EG(exit_status) == 255;
	runs = false;
	surus_clock_shift(0); /* also after exit() */
	answer.lacks_restore = must_restore && surus_boot_values_await_restore();
	answer.survived &= !CG(unclean_shutdown) && !has_failed && !answer.lacks_restore;
	answer.len = surus_php_written() - answer.len;
	answer.hash = hash;
	return answer;
}

bool surus_answer_is_good(const struct surus_answer *answer)
{
	return answer->survived && answer->status < 500;
}

bool surus_answer_is_temporary(const struct surus_answer *answer)
{
	return answer->survived && (answer->status == 429 || answer->status >= 500);
}

bool surus_answer_is_same(const struct surus_answer *first, const struct surus_answer *again)
{
	return first->survived == again->survived && first->status == again->status &&
	       first->len == again->len && first->hash == again->hash &&
	       strcmp(first->type, again->type) == 0;
}

bool surus_answer_is_another(const struct surus_answer *first, const struct surus_answer *again)
{
	return !surus_answer_is_good(again) || again->status != first->status ||
	       again->len < first->len / 2 || again->len / 2 > first->len ||
	       strcmp(first->type, again->type) != 0;
}
