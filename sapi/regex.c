/* Regular expressions that events have had PHP compile. PHP keeps them for later requests, and so does php-fpm; a process that ends
 * with its event, or is put back, cannot. So events note which they were, in memory that all processes share, and the template
 * compiles those that have come again, for the workers that it forks from then on. Only the expression's text leaves an event. */
#include "surus.h"

#include <ctype.h>
#include <string.h>
#include <sys/mman.h>

#include <php.h>
#include <ext/pcre/php_pcre.h>
#include <zend_exceptions.h>

enum {
	SLOTS = 1024,
	PROBES = 8,
	LONGEST = 4064, /* bytes of an expression */
	OFTEN = 2,      /* events that have compiled an expression before the template does */
	FIRST_WAIT = 1000000, /* microseconds from the boot to the first time that the template compiles */
	WAIT_FACTOR = 4,      /* and how much longer it waits each time after */
	LONGEST_WAIT = 600000000,
	APART = 20000, /* microseconds between two workers that make room for others */
};

enum { FREE, WRITING, WRITTEN };

/* An expression. A process that dies while it writes leaves a slot that nobody reads. */
struct slot {
	_Atomic uint32_t state, events;
	uint32_t len;
	bool compiled; /* by the template, whose alone this is */
	uint64_t hash;
	char text[LONGEST];
};

static struct table {
	_Atomic uint32_t due;      /* expressions that have come often enough */
	_Atomic uint32_t compiled; /* those of them that the template has compiled */
	_Atomic uint64_t not_before, next_leaves;
	struct slot slots[SLOTS];
} *table;

/* What this process began with. */
static uint32_t known, compiled;
static uint64_t wait = FIRST_WAIT;

bool surus_regex_start(void)
{
	/* Pages that no expression has come to are no memory yet. */
	void *shared = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	table = shared == MAP_FAILED ? NULL : shared;
	return table != NULL;
}

void surus_regex_booted(void)
{
	known = PCRE_G(pcre_cache).nNumUsed;
	atomic_store(&table->not_before, surus_now() + wait);
	atomic_store(&table->compiled, compiled);
}

/* Under a locale, PHP's key is the locale's name and the expression. No expression begins as names do. */
static bool is_expression(const zend_string *key)
{
	const char *at = ZSTR_VAL(key);

	while (isspace((unsigned char)*at)) {
		at++;
	}
	return *at != '\0' && *at != '\\' && !isalnum((unsigned char)*at);
}

static void note(zend_string *expression)
{
	uint64_t hash = ZSTR_HASH(expression);

	if (ZSTR_LEN(expression) > LONGEST || !is_expression(expression)) {
		return;
	}
	for (uint64_t i = 0; i < PROBES; i++) {
		struct slot *slot = &table->slots[(hash + i) % SLOTS];
		uint32_t state = FREE;
		if (atomic_compare_exchange_strong(&slot->state, &state, WRITING)) {
			slot->len = (uint32_t)ZSTR_LEN(expression);
			slot->hash = hash;
			memcpy(slot->text, ZSTR_VAL(expression), ZSTR_LEN(expression));
			atomic_store(&slot->events, 1);
			atomic_store(&slot->state, WRITTEN);
			return;
		}
		if (state == WRITTEN && slot->hash == hash && slot->len == ZSTR_LEN(expression) &&
		    memcmp(slot->text, ZSTR_VAL(expression), slot->len) == 0) {
			if (atomic_fetch_add(&slot->events, 1) + 1 == OFTEN) {
				atomic_fetch_add(&table->due, 1);
			}
			return;
		}
	}
}

void surus_regex_note(void)
{
	HashTable *cache = &PCRE_G(pcre_cache);

	for (uint32_t i = known; i < cache->nNumUsed; i++) {
		if (Z_TYPE(cache->arData[i].val) != IS_UNDEF && cache->arData[i].key) {
			note(cache->arData[i].key);
		}
	}
}

bool surus_regex_is_due(void)
{
	return atomic_load_explicit(&table->due, memory_order_relaxed) > atomic_load_explicit(&table->compiled, memory_order_relaxed) &&
	       surus_now() >= atomic_load_explicit(&table->not_before, memory_order_relaxed);
}

bool surus_regex_leaves(void)
{
	if (atomic_load_explicit(&table->compiled, memory_order_relaxed) == compiled && !surus_regex_is_due()) {
		return false;
	}
	/* One after the other, so that the rest goes on serving. */
	uint64_t now = surus_now(), next = atomic_load(&table->next_leaves);
	return now >= next && atomic_compare_exchange_strong(&table->next_leaves, &next, now + APART);
}

/* Without the application hearing of it: it has not asked for this, and this is not the place for its code. */
static void compile(struct slot *slot)
{
	zend_string *expression = zend_string_init(slot->text, slot->len, 1);
	zval error_handler, exception_handler;
	int reporting = EG(error_reporting);
	bool jit = PCRE_G(jit);

	ZVAL_COPY_VALUE(&error_handler, &EG(user_error_handler));
	ZVAL_COPY_VALUE(&exception_handler, &EG(user_exception_handler));
	ZVAL_UNDEF(&EG(user_error_handler));
	ZVAL_UNDEF(&EG(user_exception_handler));
	EG(error_reporting) = 0;
	zend_try {
		pcre_get_compiled_regex_cache(expression);
	} zend_catch {
		CG(unclean_shutdown) = 0;
	} zend_end_try();
	if (EG(exception)) {
		zend_clear_exception();
	}
	EG(error_reporting) = reporting;
	ZVAL_COPY_VALUE(&EG(user_error_handler), &error_handler);
	ZVAL_COPY_VALUE(&EG(user_exception_handler), &exception_handler);
	PCRE_G(jit) = jit;
	zend_string_release_ex(expression, 1);
	slot->compiled = true;
	compiled++;
}

void surus_regex_compile(void)
{
	for (size_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &table->slots[i];
		if (slot->compiled || atomic_load(&slot->state) != WRITTEN) {
			continue;
		}
		if (atomic_load(&slot->events) >= OFTEN) {
			compile(slot);
		} else {
			/* Made for one visitor, it seems. */
			atomic_store(&slot->state, FREE);
		}
	}
	wait = wait * WAIT_FACTOR < LONGEST_WAIT ? wait * WAIT_FACTOR : LONGEST_WAIT;
}
