/* Ends the rewriting of URLs (session.use_trans_sid, output_add_rewrite_var) with each event of a
 * process that lives on. */
#ifndef SURUS_PHP_URL_REWRITER_H
#define SURUS_PHP_URL_REWRITER_H

/* Behind the output of an event: ends what session.use_trans_sid has begun. */
void surus_url_rewriter_end(void);

#endif
