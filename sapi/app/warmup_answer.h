/* Runs a warm-up's request and keeps of its response what two of them are compared by. */
#ifndef SURUS_APP_WARMUP_ANSWER_H
#define SURUS_APP_WARMUP_ANSWER_H

#include <stdbool.h>
#include <stdint.h>

struct _zend_fcall_info;
struct _zend_fcall_info_cache;

struct surus_answer {
	bool survived;
	/* the boot script has not restored the boot after the last warm-up, and so does not survive */
	bool lacks_restore;
	int status;
	uint64_t len;
	uint64_t hash; /* of the body; only after surus_answers_hash_bodies() */
	double time; /* REQUEST_TIME_FLOAT of the request */
	char type[64];
};

/* Whether this process runs a warm-up now. */
bool surus_warmup_runs(void);

/* In a fork that tries a warm-up. */
void surus_answers_hash_bodies(void);
/* Serves the decoded request. */
struct surus_answer surus_answer_ask(struct _zend_fcall_info *handler,
        struct _zend_fcall_info_cache *cache);

bool surus_answer_is_good(const struct surus_answer *answer);
/* Whether the application may answer otherwise later: it fails or limits requests. */
bool surus_answer_is_temporary(const struct surus_answer *answer);
bool surus_answer_is_same(const struct surus_answer *first, const struct surus_answer *again);
/* Whether the second response differs in more than values (times, tokens, names). */
bool surus_answer_is_another(const struct surus_answer *first, const struct surus_answer *again);

#endif
