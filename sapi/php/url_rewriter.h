/* Ends URL rewriting (session.use_trans_sid, output_add_rewrite_var) with each request of a process
 * that continues. */
#ifndef SURUS_PHP_URL_REWRITER_H
#define SURUS_PHP_URL_REWRITER_H

/* After the output of a request: ends what session.use_trans_sid has begun. */
void surus_url_rewriter_end(void);

#endif
