/* Warm-ups: requests that are served before the first event, and answered to nobody. */
#include "snapshot.h"
#include "surus.h"

#include <stdio.h>
#include <unistd.h>

#include <php.h>
#include <SAPI.h>

/* From a place of our own: all workers have the same open file, and where they boot each for itself they read at the same time. */
static bool read_exactly(off_t *from, void *to, size_t len)
{
	char *at = to;

	while (len > 0) {
		ssize_t got = pread(SURUS_FD_WARMUP, at, len, *from);
		if (got <= 0) {
			return false;
		}
		at += got;
		*from += got;
		len -= (size_t)got;
	}
	return true;
}

/* Serves one warm-up. False: it could not be served as an event is, said on stderr. */
static bool warm_up(zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
	char uri[256];
	int status;

	snprintf(uri, sizeof(uri), "%s", SURUS_VAR(&surus_self->event, "REQUEST_URI"));
	surus_handle_begin();
	bool survived = surus_handle_call(handler, cache);
	status = SG(sapi_headers).http_response_code;
	surus_handle_end();
	survived &= !CG(unclean_shutdown);
	const char *why = survived && surus_boots_in_template() ? surus_boot_refuses() : NULL;
	if (why) {
		fprintf(stderr, "surus-php: after the warm-up %s: %s\n", uri, why);
		return false;
	}
	if (!survived || status >= 500) {
		fprintf(stderr, "surus-php: the warm-up %s %s; see the lines above, or take it out of engine.warmup\n", uri,
		        survived ? "was answered with an error" : "ended in a fatal error");
		return false;
	}
	return true;
}

bool surus_warmups_run(zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
	off_t at = 0;
	uint32_t len;

	if (!surus_settings.warms_up) {
		return true;
	}
	surus_outbox_discard(true);
	while (read_exactly(&at, &len, sizeof(len))) {
		if (len > SURUS_MESSAGE_MAX || !read_exactly(&at, surus_self->message, len) ||
		    !surus_event_decode(&surus_self->event, len) || !warm_up(handler, cache)) {
			return false;
		}
	}
	surus_outbox_discard(false);
	return true;
}
