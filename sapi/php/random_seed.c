/* Generators of random numbers. Memory that is put back gives the same numbers again; so after each
 * rewind every generator of this process starts anew from the kernel's.
 *
 * Those of OpenSSL, GnuTLS and libgcrypt do so by themselves: each remembers the process that has
 * seeded it, which was the template, and seeds itself anew when it finds that it is not that
 * process, which every worker finds after every rewind. */
#include "php/random_seed.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <php.h>
#include <ext/random/php_random.h>

#include "base/persistent_map.h"
#include "base/process_state.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"

/* Bytes that nobody has had, and how many. Not restored by a rewind. */
static struct drawn {
	size_t left;
	unsigned char bytes[8192];
} *drawn;

static zend_object **engines; /* those that the boot has made */
static size_t engine_count;

/* The state of libc's random(): behind a word that says of what kind it is, 31 words of any
 * content. */
static char libc_state[128];

bool surus_random_create(void)
{
	drawn = surus_persistent_alloc(sizeof(*drawn));
	return drawn != NULL;
}

void surus_random_forget(void)
{
	drawn->left = 0;
	explicit_bzero(drawn->bytes, sizeof(drawn->bytes));
}

/* --- GMP's --- */

/* PHP seeds it when it is first used, with 20 bits, and no more: what a boot has used would give
 * the same numbers to all, and of a thousand processes that boot for themselves two would often
 * have the same. */
static const char *const gmp_names[] = {"gmp_random_seed", "gmp_random_bits", "gmp_random_range"};

enum { GMP_FUNCTIONS = sizeof(gmp_names) / sizeof(*gmp_names) };
static zend_function *gmp_functions[GMP_FUNCTIONS]; /* closures have copies, with the same name */
static zif_handler gmp_handlers[GMP_FUNCTIONS];
static bool gmp_seeded;
static uint64_t seed(void);

static ZEND_FUNCTION(surus_gmp)
{
	for (size_t i = 0; i < GMP_FUNCTIONS; i++) {
		if (!gmp_functions[i] || gmp_functions[i]->common.function_name !=
		        EX(func)->common.function_name) {
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

/* --- libuuid's --- */

/* It keeps to itself what tells its UUIDs of time from those that another process makes in the same
 * moment: 14 bits, drawn for the first one, and all that are forked from there would have the same.
 * So those that a boot wants are made by a process that is nobody's parent. */
static zif_handler plain_uuid_create;

static bool makes_time_in_boot(zend_execute_data *call)
{
	enum { TIME = 1 }; /* UUID_TYPE_TIME */

	return surus_boots_in_template() && surus_self->line == &surus_self->nowhere &&
	        ZEND_CALL_NUM_ARGS(call) > 0 &&
	       zval_get_long(ZEND_CALL_ARG(call, 1)) == TIME;
}

static ZEND_FUNCTION(surus_uuid_create)
{
	enum { LENGTH = 36 };
	char made[LENGTH];
	int ends[2];
	pid_t child;

	if (!makes_time_in_boot(execute_data) || pipe2(ends, O_CLOEXEC) != 0) {
		plain_uuid_create(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		return;
	}
	child = fork();
	if (child == 0) {
		plain_uuid_create(INTERNAL_FUNCTION_PARAM_PASSTHRU);
		bool is_one = Z_TYPE_P(return_value) == IS_STRING && Z_STRLEN_P(return_value) == LENGTH;
		_exit(is_one && write(ends[1], Z_STRVAL_P(return_value), LENGTH) == LENGTH ? 0 : 1);
	}
	close(ends[1]);
	ssize_t len = child < 0 ? -1 : read(ends[0], made, LENGTH);
	close(ends[0]);
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR) {
	}
	if (len == LENGTH) {
		RETURN_STRINGL(made, LENGTH);
	}
	plain_uuid_create(INTERNAL_FUNCTION_PARAM_PASSTHRU);
}

static void watch_uuid(void)
{
	zend_function *function = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("uuid_create"));

	if (function && function->type == ZEND_INTERNAL_FUNCTION) {
		plain_uuid_create = function->internal_function.handler;
		function->internal_function.handler = ZEND_FN(surus_uuid_create);
	}
}

void surus_random_prepare(void)
{
	watch_uuid();
	for (size_t i = 0; i < GMP_FUNCTIONS; i++) {
		zend_function *function = zend_hash_str_find_ptr(CG(function_table), gmp_names[i],
		        strlen(gmp_names[i]));
		if (function && function->type == ZEND_INTERNAL_FUNCTION) {
			gmp_functions[i] = function;
			gmp_handlers[i] = function->internal_function.handler;
			function->internal_function.handler = ZEND_FN(surus_gmp);
		}
	}
}

/* --- the others --- */

/* Starts anew what can be left to start itself when it is used: in every fork, and after every
 * rewind to where we are. */
static void forget(void)
{
	void (*sqlite)(int, void *) = (void (*)(int, void *))dlsym(RTLD_DEFAULT, "sqlite3_randomness");

	RANDOM_G(mt19937_seeded) = false;
	if (sqlite) {
		sqlite(0, NULL); /* https://sqlite.org/c3ref/randomness.html */
	}
}

/* Engines that the boot has made: Random\Engine\Mt19937 and its kin, and what is derived from
 * them. */
void surus_random_note(void)
{
	zend_objects_store *store = &EG(objects_store);

	forget();
	gmp_seeded = false;
	/* What the template had, all would get. */
	drawn->left = 0;
	initstate(1, libc_state, sizeof(libc_state));
	for (uint32_t i = 1; i < store->top; i++) {
		zend_object *object = store->object_buckets[i];
		if (IS_OBJ_VALID(object) && (instanceof_function(object->ce,
		        random_ce_Random_Engine_Mt19937) ||
		                             instanceof_function(object->ce,
		                             random_ce_Random_Engine_PcgOneseq128XslRr64) ||
		                             instanceof_function(object->ce,
		                             random_ce_Random_Engine_Xoshiro256StarStar))) {
			engines = perealloc(engines, (engine_count + 1) * sizeof(*engines), 1);
			engines[engine_count++] = object;
		}
	}
}

/* Gives random bytes of the kernel's. They are fetched for many requests together where a process
 * serves many, because a call costs more than what it fetches; in memory that is never put back,
 * and of which the template has none, so nobody gets them twice. */
static void draw(void *to, size_t size)
{
	size_t fetched = surus_settings.engine == SURUS_REWIND ? sizeof(drawn->bytes) : size;

	if (drawn->left < size) {
		size_t got = 0;
		while (got < fetched) {
			ssize_t more = getrandom(drawn->bytes + got, fetched - got, 0);
			got += more > 0 ? (size_t)more : 0;
		}
		drawn->left = fetched;
	}
	drawn->left -= size;
	memcpy(to, drawn->bytes + drawn->left, size);
	/* What has been drawn is nobody else's to find. */
	explicit_bzero(drawn->bytes + drawn->left, size);
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
		php_random_pcgoneseq128xslrr64_seed128(engine->engine.state,
		        php_random_uint128_constant(high, seed()));
	}
#endif
}

/* PHP 8.2 seeds it with the microsecond and the pid, and so gives a worker that begins with each
 * request the same numbers again after some thousand of them. */
static void renew_combined(void)
{
	/* What each of its two halves may be. */
	enum { FIRST = 2147483562, SECOND = 2147483398 };
#if PHP_VERSION_ID < 80400
	php_random_status_state_combinedlcg *status = RANDOM_G(combined_lcg)->state;
	int32_t *state = status->state;
#else
	int32_t *state = RANDOM_G(combined_lcg);
#endif

	state[0] = 1 + (int32_t)(seed() % FIRST);
	state[1] = 1 + (int32_t)(seed() % SECOND);
	RANDOM_G(combined_lcg_seeded) = true;
}

/* 31 words of 128 bits, by two splitmix64 (https://prng.di.unimi.it/splitmix64.c): to draw them all
 * takes longer than all else here, and so does srandom(), which would make as much of 32 bits. */
static void renew_libc(void)
{
	uint64_t words[sizeof(libc_state) / sizeof(uint64_t)], seeds[2] = {seed(), seed()};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
		words[i] = 0;
		for (size_t n = 0; n < 2; n++) {
			uint64_t z = seeds[n] += 0x9e3779b97f4a7c15;
			z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
			z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
			words[i] = (words[i] << 32 | words[i] >> 32) ^ z ^ (z >> 31);
		}
	}
	memcpy(libc_state + 4, words, sizeof(libc_state) - 4);
}

void surus_random_renew(void)
{
	renew_combined();
	for (size_t i = 0; i < engine_count; i++) {
		renew(engines[i]);
	}
	renew_libc();
}
