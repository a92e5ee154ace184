/* Runs warm-ups: requests that are served before the first client's request, without a response. */
#include "app/warmup.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <php.h>

#include "app/boot_time.h"
#include "app/boot_values.h"
#include "app/warmup_answer.h"
#include "app/warmup_report.h"
#include "app/warmup_trials.h"
#include "base/clock_shift.h"
#include "base/descriptors.h"
#include "base/process_state.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "php/sapi_module.h"
#include "rewind/boot_check.h"
#include "rewind/kernel/kernel_state.h"

static bool has_learned; /* a page has run that clients have chosen */
static bool is_first; /* no other process has run the next warm-up */

bool surus_warmup_is_first(void)
{
	return is_first;
}

/* With an offset of its own, because workers share the open file and may read at the same time. */
static bool read_exactly(off_t *from, void *to, size_t len)
{
	char *at = to;

	while (len > 0) {
		ssize_t got = pread(SURUS_FD_WARMUP, at, len, *from);
		if (got <= 0) {
			return false;
		}
		at += got;
		*from += got;
		len -= (size_t)got;
	}
	return true;
}

/* Whether Surus asks for this warm-up by itself. It is left out where it fails. */
static bool is_automatic(void)
{
	return SURUS_VAR(surus_request, "SURUS_WARMUP_AUTO") != NULL;
}

/* Whether it does so because clients often ask for the page. */
static bool is_learned(void)
{
	const char *auto_kind = SURUS_VAR(surus_request, "SURUS_WARMUP_AUTO");

	return auto_kind && strcmp(auto_kind, "learned") == 0;
}

/* The URL of a warm-up, for messages. */
struct url {
	char host[256];
	char path[256];
};

/* Copies that of the decoded request. */
static void copy_url(struct url *to)
{
	const char *host = SURUS_VAR(surus_request, "HTTP_HOST");

	snprintf(to->host, sizeof(to->host), "%s", host ? host : "");
	snprintf(to->path, sizeof(to->path), "%s", SURUS_VAR(surus_request, "REQUEST_URI"));
}

/* Reads a message of `len` bytes. */
static bool read_request(off_t at, uint32_t len)
{
	return len <= SURUS_MESSAGE_MAX && read_exactly(&at, surus_request_message, len) &&
	       surus_request_decode(surus_request, len);
}

/* The outcome of a warm-up in a fork. */
struct trial {
	struct surus_answer answers[2];
	/* what it leaves in the boot; empty: nothing */
	char left[256];
	/* a variable that has the time of the first request after the second one; empty: none */
	char keeps_time[200];
};

/* Tells the boot script that a fork tries the warm-up, which is its last one: the script restores
 * the boot. */
static void make_trial(void)
{
	char *text = (char *)SURUS_VAR(surus_request, "SURUS_WARMUP");

	/* "2/10" becomes "0/00". */
	for (; text && *text; text++) {
		if (isdigit((unsigned char)*text)) {
			*text = '0';
		}
	}
}

/* What warm-ups have left, after the boot script has restored the boot. NULL: nothing. */
static const char *find_left(void)
{
	if (!surus_boot_values_restored()) {
		return "all, because the boot script does not call surus_restore_boot()";
	}
	return surus_kernel_call() ? surus_kernel_call() : surus_boot_values_left();
}

static void save_left(struct trial *trial)
{
	const char *left = surus_warmup_files_written()
	        ? "something in a temporary file that the boot holds open (php://temp, tmpfile)"
	        : find_left();

	if (left) {
		snprintf(trial->left, sizeof(trial->left), "%s", left);
	}
}

/* Which requests a fork runs, and how. */
struct plan {
	off_t at;
	uint32_t len;
	/* An automatic warm-up writes no errors, because the user has not asked for it. */
	bool is_silent;
	/* Leaves out the second request. */
	bool is_first_only;
	/* Seconds by which the clock is fast in the first request; twice as many in the second. */
	long shift;
};

static void save_kept_time(struct trial *trial, const zval *handler)
{
	const char *variable = trial->answers[1].survived
	                       ? surus_boot_time_find(trial->answers[0].time, handler) : NULL;

	if (variable) {
		snprintf(trial->keeps_time, sizeof(trial->keeps_time), "%s", variable);
	}
}

/* Runs the request twice, the first time without output, because the prototype process will report
 * the same errors. */
_Noreturn static void try_in_fork(pid_t parent, int result, const struct plan *plan,
        zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
	off_t at = plan->at;
	uint32_t len = plan->len;
	bool is_silent = plan->is_silent;
	struct trial trial = {0};

	/* A warm-up that does not end must not outlive a boot that is killed. The parent may have ended
	 * before the call. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) {
		_exit(1);
	}
	if (!surus_engine_boots_in_prototype()) {
		surus_process->line = &surus_process->nowhere; /* the worker's line is the worker's */
	}
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC), log =
	        is_silent ? -1 : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

	/* The check below accepts what is open as standard input. */
	dup2(result, STDIN_FILENO);
	dup2(null, STDERR_FILENO);
	close(null);
	surus_php_log_fatal_only(true);
	surus_kernel_forget_calls();
	surus_answers_hash_bodies();
	if (!surus_warmup_files_separate()) {
		_exit(1);
	}
	if (read_request(at, len)) {
		make_trial();
		surus_clock_shift(plan->shift);
		trial.answers[0] = surus_answer_ask(handler, cache);
		save_left(&trial);
	}
	if (!is_silent) {
		dup2(log, STDERR_FILENO);
		surus_php_log_fatal_only(false);
	}
	if (!plan->is_first_only && surus_answer_is_good(&trial.answers[0]) && read_request(at, len)) {
		make_trial();
		surus_clock_shift(2 * plan->shift);
		trial.answers[1] = surus_answer_ask(handler, cache);
		save_kept_time(&trial, &handler->function_name);
	}
	if (is_silent && surus_answer_is_good(&trial.answers[1]) && surus_engine_boots_in_prototype() &&
	        surus_boot_check()) {
		/* The boot would fail. */
		trial.answers[1].survived = false;
	}
	_exit(write(result, &trial, sizeof(trial)) == sizeof(trial) ? 0 : 1);
}

/* Tries the warm-up in a new fork. False: there is no result. */
static bool try(struct trial *trial, const struct plan *plan, zend_fcall_info *handler,
        zend_fcall_info_cache *cache)
{
	int result[2];

	if (pipe2(result, O_CLOEXEC) != 0) {
		return false;
	}
	fflush(NULL);
	surus_warmup_files_save();
	surus_process->forks_workers = true; /* Surus forks, not a script */
	pid_t parent = getpid(), pid = fork();
	surus_process->forks_workers = false;
	if (pid == 0) {
		try_in_fork(parent, result[1], plan, handler, cache);
	}
	close(result[1]);
	bool is_known = pid > 0 && read(result[0], trial, sizeof(*trial)) == sizeof(*trial);
	close(result[0]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
	}
	surus_warmup_files_restore();
	return is_known;
}

/* Whether the second of these pages shows that the warm-up changes the application. A page that is
 * the same in another fork has no times and tokens, so it must be the same after the warm-up, too.
 * That fork runs last: a time that is the same in both was the same between them. */
static bool shows_change(const struct surus_answer *answers, struct plan plan,
        zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
	struct trial trial = {0};

	if (surus_answer_is_another(&answers[0], &answers[1])) {
		return true;
	}
	plan.is_silent = plan.is_first_only = true;
	return !surus_answer_is_same(&answers[0], &answers[1]) && try(&trial, &plan, handler, cache) &&
	       surus_answer_is_same(&answers[0], &trial.answers[0]);
}

/* Whether a variable keeps the time of a request for the later ones, as `define()` does. If one
 * has that second after the trial, the boot or the second request may have set it, too. So a fork
 * asks again, with a clock that gives each request a second of its own. It is fast by two seconds
 * at most, so that data of the application does not expire. */
static bool keeps_time(struct trial *trial, struct plan plan, zend_fcall_info *handler,
        zend_fcall_info_cache *cache)
{
	struct trial again = {0};

	plan.is_silent = true;
	plan.shift = 1;
	if (!trial->keeps_time[0] || !try(&again, &plan, handler, cache)) {
		return false;
	}
	again.keeps_time[sizeof(again.keeps_time) - 1] = '\0';
	memcpy(trial->keeps_time, again.keeps_time, sizeof(trial->keeps_time));
	snprintf(trial->left, sizeof(trial->left), "%s, which keeps the time of the request",
	        trial->keeps_time);
	return trial->keeps_time[0];
}

/* Names the host as the remedy only if it is the likely cause. */
static const char *remedy(const struct url *url, int status)
{
	bool is_of_host = status == 400 || status == 404 || status == 421;

	return is_of_host || strcmp(url->host, "localhost") == 0
	               ? "; name the host that visitors use in [[route]] or [[site]]"
	               : "";
}

/* Why a learned page that was tried is left out. NULL: it is used. Clients got 200, so what answers
 * with another status is not the page. */
static const char *learned_obstacle(const struct trial *trial, bool is_changed)
{
	const struct surus_answer *first = &trial->answers[0], *second = &trial->answers[1];

	if (!first->survived) {
		return SURUS_LEFT_OUT_FAILED;
	}
	/* An application that its own first request has broken answers the second one with 500. */
	if (surus_answer_is_temporary(first) ||
	        (surus_answer_is_temporary(second) && second->status != 500)) {
		return SURUS_LEFT_OUT_TEMPORARY;
	}
	if (first->status != 200) {
		return SURUS_LEFT_OUT_STATUS;
	}
	if (trial->left[0]) {
		return SURUS_LEFT_OUT_STATE;
	}
	return !second->survived ? SURUS_LEFT_OUT_FAILED : is_changed ? SURUS_LEFT_OUT_CHANGED : NULL;
}

static void report_temporary(const struct url *url, const struct surus_answer *answer)
{
	fprintf(stderr, "surus-php: the page %s, for which clients often ask, does not warm up this "
	        "boot, because it has status %d for now; it is tried again later\n", url->path,
	        answer->status);
}

static void report_learned(const struct url *url, const struct trial *trial, const char *reason)
{
	const struct surus_answer *first = &trial->answers[0], *second = &trial->answers[1];
	char why[640] = "it fails, or changes the next answer";

	if (strcmp(reason, SURUS_LEFT_OUT_TEMPORARY) == 0) {
		report_temporary(url, surus_answer_is_temporary(first) ? first : second);
		return;
	}
	if (strcmp(reason, SURUS_LEFT_OUT_STATUS) == 0) {
		snprintf(why, sizeof(why), "it has status %d at %s%s", first->status, url->host,
		        remedy(url, first->status));
	} else if (strcmp(reason, SURUS_LEFT_OUT_STATE) == 0) {
		snprintf(why, sizeof(why), "it leaves in the boot what Surus cannot restore: %s",
		        trial->left);
	}
	fprintf(stderr, "surus-php: the page %s, for which clients often ask, is left out of the "
	        "warm-up: %s\n", url->path, why);
}

/* Why this warm-up is left out. NULL: it is used. It is left out if the application responds
 * differently once it has served the request. Clients' requests run in a process in which the
 * warm-up has run, like the second one in this fork. */
static const char *why_left_out(int number, off_t at, uint32_t len, zend_fcall_info *handler,
        zend_fcall_info_cache *cache)
{
	struct trial trial = {0};
	struct surus_answer *answers = trial.answers;
	bool may_fail = false, learned = false;
	struct url url = {0};

	if (read_request(at, len)) {
		may_fail = is_automatic();
		learned = is_learned();
		copy_url(&url);
		surus_request_close(surus_request);
	}
	is_first = false;
	if (surus_warmup_is_known(number)) {
		return surus_warmup_is_left_out(number) ? SURUS_LEFT_OUT_CHANGED : NULL;
	}
	const char *obstacle = surus_warmup_obstacle();
	if (obstacle) {
		is_first = surus_warmup_record(number, false);
		if (is_first && !may_fail) {
			fprintf(stderr, "surus-php: the warm-up %s is used without a trial, because the boot "
			        "has left %s; if it changes later responses, `surus check --boot` names it\n",
			        url.path, obstacle);
		}
		return NULL;
	}
	struct plan plan = {.at = at, .len = len, .is_silent = may_fail};
	if (!try(&trial, &plan, handler, cache)) {
		trial = (struct trial){0};
	}
	bool is_bad = !surus_answer_is_good(&answers[0]);
	bool other = !is_bad && shows_change(answers, plan, handler, cache);
	const char *why = NULL;
	trial.left[sizeof(trial.left) - 1] = '\0';
	if (learned) {
		why = learned_obstacle(&trial, other);
	} else if (is_bad) {
		/* A warm-up that fails the first time fails as one, too, and is reported then. */
		why = may_fail ? SURUS_LEFT_OUT_FAILED : NULL;
	} else if (other) {
		why = SURUS_LEFT_OUT_CHANGED;
	}
	bool kept = !why && !is_bad && keeps_time(&trial, plan, handler, cache);
	if (kept) {
		why = SURUS_LEFT_OUT_STATE;
	}
	is_first = surus_warmup_record(number, why != NULL);
	if (!is_first || !why) {
		return why;
	}
	if (learned) {
		report_learned(&url, &trial, why);
		return why;
	}
	if (kept) {
		fprintf(stderr, "surus-php: the warm-up %s is left out: %s keeps the time of the request, "
		        "and every later one would take it for its own; read $_SERVER['REQUEST_TIME'] in "
		        "each request instead\n", url.path, trial.keeps_time);
		return why;
	}
	if (may_fail) {
		fprintf(stderr, "surus-php: cannot warm up the application by a page that does not exist; "
		        "name pages in engine.warmup\n");
		return why;
	}
	if (read_request(at, len)) {
		fprintf(stderr,
		        "surus-php: the warm-up %s is left out: asked again after it, the application "
		        "answers with status %d and %llu bytes instead of %d and %llu%s, as it would "
		        "answer all requests; take it out of engine.warmup, or find what the application "
		        "keeps of a request\n",
		        SURUS_VAR(surus_request, "REQUEST_URI"), answers[1].status,
		        (unsigned long long)answers[1].len,
		        answers[0].status, (unsigned long long)answers[0].len,
		        answers[0].len == answers[1].len ? ", and with other contents" : "");
		surus_request_close(surus_request);
	}
	return why;
}

/* Runs one warm-up. False: it failed; said on stderr. */
static bool warm_up(int number, zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
	struct url url;

	copy_url(&url);
	bool may_fail = is_automatic(), learned = is_learned();
	has_learned |= learned;
	/* Each process of `standby` would log the error page. */
	surus_php_log_fatal_only(may_fail && !learned && !is_first);
	struct surus_answer answer = surus_answer_ask(handler, cache);
	surus_php_log_fatal_only(false);
	bool has_failed = !surus_answer_is_good(&answer) && !(may_fail && answer.survived);
	const char *why =
	        answer.survived && surus_engine_boots_in_prototype() ? surus_boot_check() : NULL;
	if (why) {
		fprintf(stderr, "surus-php: after the warm-up %s: %s\n", url.path, why);
		return false;
	}
	if (has_failed) {
		fprintf(stderr, "surus-php: the warm-up %s %s, or %s\n", url.path,
		        answer.survived
		        ? "was answered with an error; see the lines above"
		        : answer.lacks_restore
		        ? "ended before the boot script had restored the boot; call "
		          "surus_restore_boot() at its end, and let no shutdown function call exit() or "
		          "throw an exception"
		        : "ended in a fatal error; see the lines above",
		        may_fail ? "set engine.warmup = []" : "take it out of engine.warmup");
		return false;
	}
	if (learned && surus_answer_is_temporary(&answer)) {
		report_temporary(&url, &answer);
		surus_warmup_report_left_out(number, SURUS_LEFT_OUT_TEMPORARY);
	}
	if (is_first && !may_fail && answer.status >= 300) {
		fprintf(stderr, "surus-php: the warm-up %s has status %d at %s, so it loads no more than "
		        "that answer needs; name a URL in engine.warmup that visitors get with status 200, "
		        "with its host if the application checks it\n", url.path, answer.status, url.host);
	}
	return true;
}

bool surus_warmups_run(zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
	off_t at = 0;
	uint32_t len;

	/* Whatever warm-ups do, a boot that the check rejects is reported with the reason. */
	if (!surus_settings.warms_up || (surus_engine_boots_in_prototype() && surus_boot_check())) {
		return true;
	}
	surus_outbox_discard(true);
	surus_kernel_forget_calls();
	for (int number = 1; read_exactly(&at, &len, sizeof(len)); number++) {
		const char *why = why_left_out(number, at, len, handler, cache);
		if (why) {
			surus_warmup_report_left_out(number, why);
		} else if (!read_request(at, len) || !warm_up(number, handler, cache)) {
			return false;
		}
		surus_warmup_report_count(number);
		at += len;
	}
	if (surus_boot_values_await_restore()) {
		/* The last warm-up is left out, after which the boot script would have restored it. */
		surus_boot_values_restore();
	}
	const char *left = find_left();
	if (has_learned && left) {
		fprintf(stderr, "surus-php: pages for which clients often ask leave in the boot what "
		        "Surus cannot restore: %s\n", left);
		return false;
	}
	surus_boot_values_free();
	surus_outbox_discard(false);
	return true;
}
