/* Reseeds random generators after a fork and after each rewind, because restored memory would give
 * the same numbers again.
 *
 * OpenSSL, GnuTLS and libgcrypt reseed themselves: each remembers the process that has seeded it,
 * which was the prototype process, and reseeds in any other process. */
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

/* Random bytes that are unused, and how many. In persistent memory. */
static struct pool {
	size_t left;
	unsigned char bytes[8192];
} *pool;

static zend_object **engines; /* engine objects of the boot */
static size_t engine_count;

/* The state of libc's random(): a word with its type and 31 words of any content. */
static char libc_state[128];

bool surus_random_create(void)
{
	pool = surus_persistent_alloc(sizeof(*pool));
	return pool != NULL;
}

void surus_random_discard(void)
{
	pool->left = 0;
	explicit_bzero(pool->bytes, sizeof(pool->bytes));
}

/* --- GMP --- */

/* PHP seeds GMP at its first use, with 20 bits. After a boot that has used it, all workers would
 * draw the same numbers; of a thousand processes that boot separately, two would often do. */
static const char *const gmp_names[] = {"gmp_random_seed", "gmp_random_bits", "gmp_random_range"};

enum { GMP_FUNCTIONS = sizeof(gmp_names) / sizeof(*gmp_names) };
static zend_function *gmp_functions[GMP_FUNCTIONS]; /* closures have copies with the same name */
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
		/* A seed of the script stays as it is. */
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

/* --- libuuid --- */

/* libuuid draws 14 bits for the first time-based UUID, which distinguish processes that make one in
 * the same moment. All workers forked after that would share them. So a child process makes the
 * time-based UUIDs of a boot. */
static zif_handler plain_uuid_create;

static bool makes_time_in_boot(zend_execute_data *call)
{
	enum { TIME = 1 }; /* UUID_TYPE_TIME */

	return surus_engine_boots_in_prototype() && surus_process->line == &surus_process->nowhere &&
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

void surus_random_install(void)
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

/* --- other generators --- */

/* Resets the generators that seed themselves at their next use: in every fork and after every
 * rewind. */
static void reset_lazy(void)
{
	void (*sqlite)(int, void *) = (void (*)(int, void *))dlsym(RTLD_DEFAULT, "sqlite3_randomness");

	RANDOM_G(mt19937_seeded) = false;
	if (sqlite) {
		sqlite(0, NULL); /* https://sqlite.org/c3ref/randomness.html */
	}
}

/* Finds the engine objects of the boot: Random\Engine\Mt19937, the other engines, and
 * subclasses. */
void surus_random_boot_end(void)
{
	zend_objects_store *store = &EG(objects_store);

	reset_lazy();
	gmp_seeded = false;
	/* All workers would get the same bytes. */
	pool->left = 0;
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

/* Returns random bytes of the kernel. `rewind` fetches them for many requests at once, because a
 * system call costs more than the bytes. They lie in persistent memory, and the prototype process
 * has none, so no bytes are used twice. */
static void draw(void *to, size_t size)
{
	size_t fetched = surus_settings.engine == SURUS_REWIND ? sizeof(pool->bytes) : size;

	if (pool->left < size) {
		size_t got = 0;
		while (got < fetched) {
			ssize_t more = getrandom(pool->bytes + got, fetched - got, 0);
			got += more > 0 ? (size_t)more : 0;
		}
		pool->left = fetched;
	}
	pool->left -= size;
	memcpy(to, pool->bytes + pool->left, size);
	/* Used bytes must not stay in memory. */
	explicit_bzero(pool->bytes + pool->left, size);
}

static uint64_t seed(void)
{
	uint64_t value;
	draw(&value, sizeof(value));
	return value;
}

static void reseed(zend_object *object)
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

/* Reseeds the combined LCG. PHP 8.2 seeds it from the microsecond and the pid, so a worker would
 * repeat numbers after some thousand requests. */
static void reseed_combined(void)
{
	/* the ranges of its two halves */
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

/* Fills 31 words from 128 bits by two splitmix64 (https://prng.di.unimi.it/splitmix64.c). Drawing
 * all words takes longer than everything else here; so does srandom(), which uses only 32 bits. */
static void reseed_libc(void)
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

void surus_random_reseed(void)
{
	reseed_combined();
	for (size_t i = 0; i < engine_count; i++) {
		reseed(engines[i]);
	}
	reseed_libc();
}
