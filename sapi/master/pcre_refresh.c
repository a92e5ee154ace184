/* Refreshes the PCRE cache and the snapshot of the prototype process before it forks the next
 * worker. */
#include "master/pcre_refresh.h"

#include <php.h>

#include "base/settings.h"
#include "php/pcre_cache.h"
#include "rewind/memory/zend_chunks.h"
#include "rewind/rewind.h"

void surus_master_refresh_pcre_cache(void)
{
	bool rewinds = surus_settings.engine == SURUS_REWIND, compiles = surus_pcre_cache_is_due() &&
	        surus_pcre_cache_try();

	/* No worker could restore what this process has mapped since the snapshot. */
	if (!compiles && !(rewinds && surus_rewind_is_outdated())) {
		return;
	}
	if (rewinds) {
		surus_chunks_pause();
	}
	if (compiles) {
		surus_pcre_cache_compile();
	}
	if (rewinds) {
		surus_rewind_snapshot();
	}
	surus_pcre_cache_save();
}
