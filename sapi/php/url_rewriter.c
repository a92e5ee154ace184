/* Ends URL rewriting (session.use_trans_sid, output_add_rewrite_var) with each request of a process
 * that continues.
 *
 * PHP does so when its extension "standard" shuts down, which does not happen here; while rewriting
 * is active, no later request can start it. */
#include "php/url_rewriter.h"

#include <php.h>
#include <zend_smart_str.h>
#include <ext/standard/basic_functions.h>

/* As php_url_scanner_ex_deactivate() and what follows it (ext/standard/url_scanner_ex.re). */
static void end(url_adapt_state_ex_t *state)
{
	if (state->active) {
		smart_str_free(&state->result);
		smart_str_free(&state->buf);
		smart_str_free(&state->tag);
		smart_str_free(&state->arg);
		smart_str_free(&state->attr_val);
		state->active = 0;
		state->tag_type = 0;
		state->attr_type = 0;
	}
	smart_str_free(&state->form_app);
	smart_str_free(&state->url_app);
}

void surus_url_rewriter_end(void)
{
	end(&BG(url_adapt_session_ex));
	end(&BG(url_adapt_output_ex));
}
