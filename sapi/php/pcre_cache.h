/* Regular expressions that events have had PHP compile. PHP keeps them for later requests, and so
 * does php-fpm; a process that ends */
#ifndef SURUS_PHP_PCRE_CACHE_H
#define SURUS_PHP_PCRE_CACHE_H

#include <stdbool.h>
#include <sys/types.h>

/* In the template, before anything is forked. */
bool surus_regex_start(void);
/* In the template: what is compiled by now, those that it forks begin with. */
void surus_regex_booted(void);
/* At the end of an event: notes those that it has had compiled. */
void surus_regex_note(void);
/* Is it time that the template compiles those that have come again? */
bool surus_regex_is_due(void);
/* In a worker: shall it end, so that it is, or so that another has those that the template has
 * compiled since? */
bool surus_regex_leaves(void);
/* In the template: has a child try them. False: that is under way, so it is to be asked again
 * before the next worker is forked. */
bool surus_regex_try(void);
/* In a worker: closes what the template reads the child's words from. */
void surus_regex_leave_trial(void);
/* In the template: a child has ended, which may be that one. */
void surus_regex_reaped(pid_t pid);
/* In the template, after that: compiles those that are fit. */
void surus_regex_compile(void);

#endif
