/* Runs warm-ups: requests that are served before the first client's request, without a response. */
#include "app/warmup.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <php.h>
#include <SAPI.h>

#include "app/boot_values.h"
#include "app/request.h"
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

/* See surus_warmups_left_out(). Learned pages come first. The last of some hundreds of numbers may
 * be missing. */
static char left_out[2048];

static char created[1024]; /* one line */
static bool has_learned; /* a page has run that clients have chosen */
static bool runs; /* a warm-up runs now */
static bool names_status; /* this process says how the next warm-up is answered */

bool surus_warmup_runs(void)
{
	return runs;
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

/* The result of a request. */
struct page {
	bool survived;
	int status;
	uint64_t len;
	uint64_t hash; /* of the body; only in trials */
	char type[64];
};

/* Of what a fork that tries a warm-up has written. */
static uint64_t hash;
static size_t (*write_on)(const char *data, size_t len);

static size_t hash_and_write(const char *data, size_t len)
{
	for (size_t at = 0; at < len; at++) {
		hash = (hash ^ (unsigned char)data[at]) * 0x100000001b3; /* FNV-1a */
	}
	return write_on(data, len);
}

/* Copies Content-Type; empty: PHP's default. */
static void copy_type(char *to, size_t size)
{
	static const char name[] = "Content-Type:";
	zend_llist_position at;
	zend_llist *all = &SG(sapi_headers).headers;

	for (sapi_header_struct *header = zend_llist_get_first_ex(all, &at); header;
	        header = zend_llist_get_next_ex(all, &at)) {
		if (strncasecmp(header->header, name, sizeof(name) - 1) == 0) {
			snprintf(to, size, "%s", header->header + sizeof(name) - 1);
		}
	}
}

static struct page ask(zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
	struct page page = {.len = surus_php_written()};

	hash = 0xcbf29ce484222325;
	runs = true;
	surus_app_request_begin();
	page.survived = surus_app_request_call(handler, cache);
	page.status = SG(sapi_headers).http_response_code;
	copy_type(page.type, sizeof(page.type));
	surus_app_request_end();
	runs = false;
	surus_clock_shift(0); /* also after exit() */
	page.survived &= !CG(unclean_shutdown);
	page.len = surus_php_written() - page.len;
	page.hash = hash;
	return page;
}

static bool is_good(const struct page *page)
{
	return page->survived && page->status < 500;
}

static bool is_same(const struct page *first, const struct page *again)
{
	return first->survived == again->survived && first->status == again->status &&
	       first->len == again->len && first->hash == again->hash &&
	       strcmp(first->type, again->type) == 0;
}

/* Whether the second response differs in more than values (times, tokens, names). */
static bool is_another(const struct page *first, const struct page *again)
{
	return !is_good(again) || again->status != first->status || again->len < first->len / 2 ||
	       again->len / 2 > first->len || strcmp(first->type, again->type) != 0;
}

/* The outcome of a warm-up in a fork. */
struct trial {
	struct page pages[2];
	/* what it leaves in the boot; empty: nothing */
	char left[200];
};

/* Tells the boot script that the warm-up is the last one, so that it restores the boot. */
static void make_last(void)
{
	char *text = (char *)SURUS_VAR(surus_request, "SURUS_WARMUP");

	/* "02/10" becomes "01/01". */
	for (; text && *text; text++) {
		if (isdigit((unsigned char)*text)) {
			*text = isdigit((unsigned char)text[1]) ? '0' : '1';
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
	const char *left = find_left();

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
};

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
	surus_kernel_forget_calls();
	write_on = sapi_module.ub_write;
	sapi_module.ub_write = hash_and_write;
	if (read_request(at, len)) {
		make_last();
		trial.pages[0] = ask(handler, cache);
		save_left(&trial);
	}
	if (!is_silent) {
		dup2(log, STDERR_FILENO);
	}
	if (!plan->is_first_only && is_good(&trial.pages[0]) && read_request(at, len)) {
		make_last();
		trial.pages[1] = ask(handler, cache);
	}
	if (is_silent && is_good(&trial.pages[1]) && surus_engine_boots_in_prototype() &&
	        surus_boot_check()) {
		/* The boot would fail. */
		trial.pages[1].survived = false;
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
static bool shows_change(const struct page *pages, struct plan plan, zend_fcall_info *handler,
        zend_fcall_info_cache *cache)
{
	struct trial trial = {0};

	if (is_another(&pages[0], &pages[1])) {
		return true;
	}
	plan.is_silent = plan.is_first_only = true;
	return !is_same(&pages[0], &pages[1]) && try(&trial, &plan, handler, cache) &&
	       is_same(&pages[0], &trial.pages[0]);
}

/* Names the host as the remedy only if it is the likely cause. */
static const char *remedy(const struct url *url, int status)
{
	bool is_of_host = status == 400 || status == 404 || status == 421;

	return is_of_host || strcmp(url->host, "localhost") == 0
	               ? "; name the host that visitors use in [[route]] or [[site]]"
	               : "";
}

/* Whether the application responds differently once it has served this request. Clients' requests
 * run in a process in which the warm-up has run, like the second one in this fork. */
static bool changes_responses(int number, off_t at, uint32_t len, zend_fcall_info *handler,
        zend_fcall_info_cache *cache)
{
	struct trial trial = {0};
	struct page *pages = trial.pages;
	bool may_fail = false, learned = false;
	struct url url = {0};

	if (read_request(at, len)) {
		may_fail = is_automatic();
		learned = is_learned();
		copy_url(&url);
		surus_request_close(surus_request);
	}
	names_status = false;
	if (surus_warmup_is_known(number)) {
		return surus_warmup_is_left_out(number);
	}
	const char *obstacle = surus_warmup_obstacle();
	if (obstacle) {
		names_status = surus_warmup_record(number, false) && !may_fail;
		if (names_status) {
			fprintf(stderr, "surus-php: the warm-up %s is used without a trial, because the boot "
			        "has left %s; if it changes later responses, `surus check --boot` names it\n",
			        url.path, obstacle);
		}
		return false;
	}
	struct plan plan = {.at = at, .len = len, .is_silent = may_fail};
	bool is_bad = !try(&trial, &plan, handler, cache) || !is_good(&pages[0]);
	bool other = !is_bad && shows_change(pages, plan, handler, cache);
	bool leaves = learned && !is_bad && trial.left[0];
	/* Clients got 200, so what answers now is not the page. */
	bool is_no_page = learned && !is_bad && pages[0].status != 200;
	/* A warm-up that fails the first time fails as one, too, and is reported then. */
	bool changes = leaves || is_no_page || (is_bad ? learned || may_fail : other);
	bool is_first = surus_warmup_record(number, changes);
	names_status = is_first && !may_fail;
	if (!is_first || !changes) {
		return changes;
	}
	if (is_no_page) {
		fprintf(stderr, "surus-php: the page %s, for which clients often ask, is left out of the "
		        "warm-up: it has status %d at %s%s\n", url.path, pages[0].status, url.host,
		        remedy(&url, pages[0].status));
		return true;
	}
	if (leaves) {
		trial.left[sizeof(trial.left) - 1] = '\0';
		fprintf(stderr, "surus-php: the page %s, for which clients often ask, is left out of the "
		        "warm-up: it leaves in the boot what Surus cannot restore: %s\n", url.path,
		        trial.left);
		return true;
	}
	if (learned) {
		fprintf(stderr, "surus-php: the page %s, for which clients often ask, is left out of the "
		        "warm-up: it fails, or changes the next answer\n", url.path);
		return true;
	}
	if (may_fail) {
		fprintf(stderr, "surus-php: cannot warm up the application by a page that does not exist; "
		        "name pages in engine.warmup\n");
		return true;
	}
	if (read_request(at, len)) {
		fprintf(stderr,
		        "surus-php: the warm-up %s is left out: asked again after it, the application "
		        "answers with status %d and %llu bytes instead of %d and %llu%s, as it would "
		        "answer all requests; take it out of engine.warmup, or find what the application "
		        "keeps of a request\n",
		        SURUS_VAR(surus_request, "REQUEST_URI"), pages[1].status,
		        (unsigned long long)pages[1].len,
		        pages[0].status, (unsigned long long)pages[0].len,
		        pages[0].len == pages[1].len ? ", and with other contents" : "");
		surus_request_close(surus_request);
	}
	return true;
}

/* Runs one warm-up. False: it failed; said on stderr. */
static bool warm_up(zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
	struct url url;

	copy_url(&url);
	bool may_fail = is_automatic();
	has_learned |= is_learned();
	struct page page = ask(handler, cache);
	const char *why =
	        page.survived && surus_engine_boots_in_prototype() ? surus_boot_check() : NULL;
	if (why) {
		fprintf(stderr, "surus-php: after the warm-up %s: %s\n", url.path, why);
		return false;
	}
	if (!is_good(&page) && !(may_fail && page.survived)) {
		fprintf(stderr,
		        "surus-php: the warm-up %s %s; see the lines above, or take it out of "
		        "engine.warmup\n", url.path,
		        page.survived ? "was answered with an error" : "ended in a fatal error");
		return false;
	}
	if (names_status && page.status >= 300) {
		fprintf(stderr, "surus-php: the warm-up %s has status %d at %s, so it loads no more than "
		        "that answer needs; name a URL in engine.warmup that visitors get with status 200, "
		        "with its host if the application checks it\n", url.path, page.status, url.host);
	}
	return true;
}

const char *surus_warmups_left_out(void)
{
	return left_out;
}

void surus_warmups_report(const char *text, size_t len)
{
	size_t to = 0;

	for (size_t at = 0; runs && at < len && to < sizeof(created) - 1; at++) {
		created[to++] = iscntrl((unsigned char)text[at]) ? ' ' : text[at];
	}
	created[to] = '\0';
}

const char *surus_warmups_created(void)
{
	return created;
}

static void leave_out(int number)
{
	char text[16];
	int size = snprintf(text, sizeof(text), "%s%d", left_out[0] ? "," : "", number);
	size_t len = strlen(left_out);

	if (len + (size_t)size < sizeof(left_out)) {
		memcpy(left_out + len, text, (size_t)size + 1);
	}
}

bool surus_warmups_run(zend_fcall_info *handler, zend_fcall_info_cache *cache)
{
	off_t at = 0;
	uint32_t len;

	if (!surus_settings.warms_up) {
		return true;
	}
	surus_outbox_discard(true);
	surus_kernel_forget_calls();
	for (int number = 1; read_exactly(&at, &len, sizeof(len)); number++) {
		if (changes_responses(number, at, len, handler, cache)) {
			leave_out(number);
		} else if (!read_request(at, len) || !warm_up(handler, cache)) {
			return false;
		}
		at += len;
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
