/* Generators of random numbers. Memory that is put back gives the same numbers again; so after each rewind every generator of this
 * process starts anew from the kernel's.
 *
 * Those of OpenSSL, GnuTLS and libgcrypt do so by themselves: each remembers the process that has seeded it, which was the template,
 * and seeds itself anew when it finds that it is not that process, which every worker finds after every rewind. */
#include "snapshot.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <php.h>
#include <ext/random/php_random.h>

#include "surus.h"

static zend_object **engines; /* those that the boot has made */
static size_t engine_count;
/* The state of libc's random(): behind a word that says of what kind it is, 31 words of any content. */
static char libc_state[128];

/* --- GMP's --- */

/* PHP seeds it when it is first used, with 20 bits, and no more: what a boot has used would give the same numbers to all,
 * and of a thousand processes that boot for themselves two would often have the same. */
static const char *const gmp_names[] = {"gmp_random_seed", "gmp_random_bits", "gmp_random_range"};
enum { GMP_FUNCTIONS = sizeof(gmp_names) / sizeof(*gmp_names) };
static zend_function *gmp_functions[GMP_FUNCTIONS]; /* closures have copies, with the same name */
static zif_handler gmp_handlers[GMP_FUNCTIONS];
static bool gmp_seeded;

static uint64_t seed(void);

static ZEND_FUNCTION(surus_gmp)
{
	for (size_t i = 0; i < GMP_FUNCTIONS; i++) {
		if (!gmp_functions[i] || gmp_functions[i]->common.function_name != EX(func)->common.function_name) {
			continue;
		}
		/* Who gives a seed of his own, wants that. */
		if (i > 0 && !gmp_seeded) {
			zval number, nothing;
			gmp_seeded = true;
			ZVAL_LONG(&number, (zend_long)(seed() >> 1));
			zend_call_known_function(gmp_functions[0], NULL, NULL, &nothing, 1, &number, NULL);
		}
		gmp_seeded = true;
		gmp_handlers[i](INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
}

void surus_random_prepare(void)
{
	for (size_t i = 0; i < GMP_FUNCTIONS; i++) {
		zend_function *function = zend_hash_str_find_ptr(CG(function_table), gmp_names[i], strlen(gmp_names[i]));
		if (function && function->type == ZEND_INTERNAL_FUNCTION) {
			gmp_functions[i] = function;
			gmp_handlers[i] = function->internal_function.handler;
			function->internal_function.handler = ZEND_FN(surus_gmp);
		}
	}
}

/* --- the others --- */

/* Starts anew what can be left to start itself when it is used: in every fork, and after every rewind to where we are. */
static void forget(void)
{
	void (*sqlite)(int, void *) = (void (*)(int, void *))dlsym(RTLD_DEFAULT, "sqlite3_randomness");

	RANDOM_G(mt19937_seeded) = false;
	RANDOM_G(combined_lcg_seeded) = false;
	if (sqlite) {
		sqlite(0, NULL); /* https://sqlite.org/c3ref/randomness.html */
	}
}

/* Engines that the boot has made: Random\Engine\Mt19937 and its kin, and what is derived from them. */
void surus_random_note(void)
{
	zend_objects_store *store = &EG(objects_store);

	forget();
	gmp_seeded = false;
	/* What the template had, all would get. */
	surus_self->random_left = 0;
	initstate(1, libc_state, sizeof(libc_state));
	for (uint32_t i = 1; i < store->top; i++) {
		zend_object *object = store->object_buckets[i];
		if (IS_OBJ_VALID(object) && (instanceof_function(object->ce, random_ce_Random_Engine_Mt19937) ||
		                             instanceof_function(object->ce, random_ce_Random_Engine_PcgOneseq128XslRr64) ||
		                             instanceof_function(object->ce, random_ce_Random_Engine_Xoshiro256StarStar))) {
			engines = perealloc(engines, (engine_count + 1) * sizeof(*engines), 1);
			engines[engine_count++] = object;
		}
	}
}

/* Gives random bytes of the kernel's. They are fetched for many requests together where a process serves many, because a call costs
 * more than what it fetches; in memory that is never put back, and of which the template has none, so nobody gets them twice. */
static void draw(void *to, size_t size)
{
	size_t fetched = surus_settings.engine == SURUS_REWIND ? sizeof(surus_self->random) : size;

	if (surus_self->random_left < size) {
		size_t got = 0;
		while (got < fetched) {
			ssize_t more = getrandom(surus_self->random + got, fetched - got, 0);
			got += more > 0 ? (size_t)more : 0;
		}
		surus_self->random_left = fetched;
	}
	surus_self->random_left -= size;
	memcpy(to, surus_self->random + surus_self->random_left, size);
	/* What has been drawn is nobody else's to find. */
	explicit_bzero(surus_self->random + surus_self->random_left, size);
}

static uint64_t seed(void)
{
	uint64_t value;
	draw(&value, sizeof(value));
	return value;
}

static void renew(zend_object *object)
{
	php_random_engine *engine = php_random_engine_from_obj(object);
#if PHP_VERSION_ID < 80400
	engine->algo->seed(engine->status, seed());
#else
	if (instanceof_function(object->ce, random_ce_Random_Engine_Mt19937)) {
		php_random_mt19937_seed32(engine->engine.state, (uint32_t)seed());
	} else if (instanceof_function(object->ce, random_ce_Random_Engine_Xoshiro256StarStar)) {
		php_random_xoshiro256starstar_seed64(engine->engine.state, seed());
	} else {
		uint64_t high = seed();
		php_random_pcgoneseq128xslrr64_seed128(engine->engine.state, php_random_uint128_constant(high, seed()));
	}
#endif
}

void surus_random_renew(void)
{
	for (size_t i = 0; i < engine_count; i++) {
		renew(engines[i]);
	}
	/* srandom() would make as much of 32 bits, and takes longer than all else here. */
	draw(libc_state + 4, sizeof(libc_state) - 4);
}
