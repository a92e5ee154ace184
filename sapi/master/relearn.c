/* Refreshes what the master process has learned from requests before it forks the next worker. */
#include "master/relearn.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <php.h>
#include <SAPI.h>
#include <php_main.h>
#include <php_output.h>
#include <zend_exceptions.h>

#include "base/settings.h"
#include "php/pcre_cache.h"
#include "rewind/memory/zend_chunks.h"
#include "rewind/rewind.h"

void surus_boot_learn(void)
{
	bool rewinds = surus_settings.engine == SURUS_REWIND, learns = surus_regex_is_due() &&
	        surus_regex_try();

	/* What the template has mapped since its memory was copied, no worker could put back. */
	if (!learns && !(rewinds && surus_rewind_is_outdated())) {
		return;
	}
	if (rewinds) {
		surus_chunks_pause();
	}
	if (learns) {
		surus_regex_compile();
	}
	if (rewinds) {
		surus_rewind_checkpoint();
	}
	surus_regex_booted();
}
