/* The SAPI module: connects PHP's input and output to the current request, as php-fpm does.
 *
 * The reference is sapi/fpm/fpm/fpm_main.c of PHP 8.2; the oracle tests compare with it. */
#include "php/sapi_module.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>
#include <http_status_codes.h>

#include <php.h>
#include <SAPI.h>
#include <php_ini.h>
#include <php_main.h>
#include <php_output.h>
#include <php_variables.h>
#include <zend_exceptions.h>

#include "base/clock.h"
#include "base/process_state.h"
#include "base/scoreboard.h"
#include "base/scoreboard_layout.h"
#include "base/settings.h"
#include "base/startup_trace.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "ipc/request_status.h"
#include "php/connection_abort.h"
#include "php/error_header.h"
#include "php/fatal_header.h"
#include "php/fd_flags.h"
#include "php/ini_files.h"
#include "php/request_body.h"
#include "php/request_timeout.h"
#include "php/server_variables.h"
#include "php/user_ini.h"

static zend_module_entry *extension; /* defines the PHP functions of Surus */

/* --- output --- */

static uint64_t written;

uint64_t surus_php_written(void)
{
	return written;
}

static size_t ub_write(const char *data, size_t len)
{
	written += len;
	if (!surus_request->id) {
		/* Without a request, at startup or shutdown, output goes to the log. */
		return fwrite(data, 1, len, stderr);
	}
	if (surus_process->state == SURUS_FINISHING) {
		/* The response has ended. php-fpm drops the first 8 KiB and aborts the script at the next
		 * write; Surus drops all. */
		return len;
	}
	if (surus_request_status_is_closed() || !surus_outbox_write(data, len)) {
		surus_abort();
	}
	return len;
}

/* Sends the headers so far as a 103 response. The script continues with status 200. */
static void send_early_hints(void)
{
	char block[16 * 1024];
	size_t used = 0;
	zend_llist_position position;

	for (sapi_header_struct *h = zend_llist_get_first_ex(&SG(sapi_headers).headers, &position); h;
	     h = zend_llist_get_next_ex(&SG(sapi_headers).headers, &position)) {
		if (used + h->header_len + 2 > sizeof(block)) {
			break;
		}
		memcpy(block + used, h->header, h->header_len);
		memcpy(block + used + h->header_len, "\r\n", 2);
		used += h->header_len + 2;
	}
	surus_outbox_hints(block, used);
}

bool surus_php_headers_send(int status)
{
	if (SG(headers_sent) || !surus_request->id) {
		return false;
	}
	if (status < 200) {
		/* Others, such as 102, are not sent, because no client needs them. */
		if (status == 103) {
			send_early_hints();
		}
		return true;
	}
	SG(sapi_headers).http_response_code = status;
	return sapi_send_headers() == SUCCESS && surus_outbox_flush();
}

/* Whether the script has set status 103 by header() or http_response_code(). Then the headers are
 * hints, not those of the response. */
static bool take_early_hints(void)
{
	if (SG(sapi_headers).http_response_code != 103) {
		return false;
	}
	send_early_hints();
	SG(sapi_headers).http_response_code = 200;
	if (SG(sapi_headers).http_status_line) {
		efree(SG(sapi_headers).http_status_line);
		SG(sapi_headers).http_status_line = NULL;
	}
	return true;
}

static void flush(void *context)
{
	(void)context;
	if (!surus_request->id || surus_process->state == SURUS_FINISHING) {
		return;
	}
	if (!SG(headers_sent) && take_early_hints()) {
		return;
	}
#if PHP_VERSION_ID >= 80400
	/* Since 8.4 flush() sends the headers, with or without output. */
	sapi_send_headers();
#endif
	if (surus_request_status_is_closed() || !surus_outbox_flush()) {
		surus_abort();
	}
}

static void write_line(const char *line, size_t len)
{
	surus_outbox_write(line, len);
	surus_outbox_write("\r\n", 2);
}

#define STARTS_WITH(h, literal) \
	((h)->header_len > sizeof(literal) - 1 && \
	        strncasecmp((h)->header, literal, sizeof(literal) - 1) == 0)

/* Writes the CGI header block (RFC 3875, 6.3) with the lines of php-fpm's
 * sapi_cgi_send_headers(). */
static int send_headers(sapi_headers_struct *headers)
{
	zend_llist_position position;
	sapi_header_struct *h;
	bool status_sent = false;
	int status;

	if (!surus_request->id || SG(request_info).no_headers) {
		return SAPI_HEADER_SENT_SUCCESSFULLY;
	}
	take_early_hints();
	status = headers->http_response_code;
	if (status != 200) {
		const char *line = headers->http_status_line;
		const char *after_version = line ? strchr(line, ' ') : NULL;
		char text[1024];
		int len = 0;

		if (after_version && after_version - line >= 5 && strncasecmp(line, "HTTP/", 5) == 0) {
			len = snprintf(text, sizeof(text), "Status:%s", after_version);
			status = atoi(after_version + 1);
		} else {
			bool named = false;
			for (h = zend_llist_get_first_ex(&headers->headers, &position); h && !named;
			     h = zend_llist_get_next_ex(&headers->headers, &position)) {
				named = STARTS_WITH(h, "Status:");
			}
			if (!named) {
				const char *reason = NULL;
				for (size_t i = 0; i < http_status_map_len; i++) {
					if (http_status_map[i].code == status) {
						reason = http_status_map[i].str;
					}
				}
				len = snprintf(text, sizeof(text), reason ? "Status: %d %s" : "Status: %d", status,
				        reason);
			}
		}
		if (len > 0) {
			write_line(text, (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1);
			status_sent = true;
		}
	}
	for (h = zend_llist_get_first_ex(&headers->headers, &position); h;
	     h = zend_llist_get_next_ex(&headers->headers, &position)) {
		if (h->header_len == 0 || (status == 304 && STARTS_WITH(h, "Content-Type:"))) {
			continue;
		}
		if (STARTS_WITH(h, "Status:")) {
			if (status_sent) {
				continue;
			}
			status_sent = true;
		}
		write_line(h->header, h->header_len);
	}
	size_t fatal_len;
	const char *fatal = surus_fatal_header(&fatal_len);
	if (fatal) {
		write_line(fatal, fatal_len);
	}
	surus_outbox_write("\r\n", 2);
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}

static bool logs_fatal_only;

void surus_php_log_fatal_only(bool only)
{
	zend_ini_entry *file = zend_hash_str_find_ptr(EG(ini_directives), ZEND_STRL("error_log"));

	logs_fatal_only = only;
	/* Without a file, PHP calls log_message(). */
	if (file && file->on_modify) {
		file->on_modify(file, only ? NULL : file->value, file->mh_arg1, file->mh_arg2,
		        file->mh_arg3, ZEND_INI_STAGE_STARTUP);
	}
}

static void log_message(const char *message, int syslog_type)
{
	size_t len = strlen(message);

	if (logs_fatal_only && syslog_type != LOG_ERR) {
		return;
	}
	/* A warm-up has no outbox; nor has a child. */
	if (surus_request->id && !surus_process->has_no_client && !surus_process->child) {
		surus_outbox_log(message, len);
	} else {
		fprintf(stderr, "%s%s", message, len > 0 && message[len - 1] == '\n' ? "" : "\n");
	}
}

/* --- input --- */

static size_t read_post(char *buffer, size_t count)
{
	size_t done = surus_request_read_body(surus_request, buffer, count);

	/* While forms are parsed, the script has not begun, and does not begin. */
	if (surus_request->is_body_cut && !PG(during_request_startup)) {
		surus_abort();
	}
	return done;
}

static char *read_cookies(void)
{
	return SURUS_VAR(surus_request, "HTTP_COOKIE");
}

static char *get_env(const char *name, size_t len)
{
	return surus_request->id ? surus_request_var(surus_request, name, len) : NULL;
}

#if PHP_VERSION_ID < 80500
/* mbstring.encoding_translation in a .user.ini replaces PHP's form handlers and frees the old ones
 * (OnUpdate_mbstring_encoding_translation in ext/mbstring/mbstring.c). PHP has already saved one
 * for this request (sapi_read_post_data in main/SAPI.c) and would call it after it was freed;
 * php-fpm does. */
static void find_post_handler(void)
{
	if (SG(request_info).post_entry) {
		const char *type = SG(request_info).content_type_dup;
		SG(request_info).post_entry =
			zend_hash_str_find_ptr(&SG(known_post_content_types), type, strcspn(type, ";, "));
	}
}

#endif

static int read_user_ini(void)
{
	/* A booted application has its .user.ini already. */
	if (surus_request->id && !surus_engine_boots_app()) {
		surus_user_ini_activate(SG(request_info).path_translated,
		        SURUS_VAR(surus_request, "DOCUMENT_ROOT"));
#if PHP_VERSION_ID < 80500
		find_post_handler();
#endif
	}
	return SUCCESS;
}

static int activate(void)
{
	/* PHP has read forms; since 8.5 it calls read_user_ini() before. */
#if PHP_VERSION_ID < 80500
	read_user_ini();
#endif
	surus_body_prepare();
	return SUCCESS;
}

/* --- the module --- */

static int startup(sapi_module_struct *module)
{
	return php_module_startup(module, extension);
}

static sapi_module_struct module = {
	/* OPcache works only under SAPI names that it knows (accel_find_sapi in
	 * ext/opcache/ZendAccelerator.c), and applications check the name. Surus behaves like
	 * php-fpm. */
	.name = "fpm-fcgi",
	.pretty_name = "Surus",
	.startup = startup,
	.shutdown = php_module_shutdown_wrapper,
	/* Since 8.5 before the body is read, so that a directory's post_max_size applies. */
#if PHP_VERSION_ID >= 80500
	.pre_request_init = read_user_ini,
#endif
	.activate = activate,
	.ub_write = ub_write,
	.flush = flush,
	.getenv = get_env,
	.sapi_error = php_error,
	.send_headers = send_headers,
	.read_post = read_post,
	.read_cookies = read_cookies,
	.register_server_variables = surus_variables_register_server,
	.log_message = log_message,
	.php_ini_ignore_cwd = 1,
};

bool surus_php_startup(const char *program, struct _zend_module_entry *functions)
{
	extension = functions;
	zend_signal_startup();
	sapi_startup(&module);
	if (!surus_ini_choose(&module.php_ini_path_override)) {
		return false;
	}
	module.ini_entries = surus_settings.ini_entries;
	module.executable_location = (char *)program;
	if (module.startup(&module) == FAILURE) {
		return false;
	}
	surus_startup_trace_started();
	/* The worker changes into the script's directory itself, once; PHP would change back, too. */
	SG(options) |= SAPI_OPTION_NO_CHDIR;
	surus_variables_start();
	surus_body_install();
	surus_request_timeout_hook();
	surus_flags_watch();
	return true;
}

void surus_php_shutdown(void)
{
	php_module_shutdown();
	sapi_shutdown();
}

#ifdef ZEND_SIGNALS
/* PHP's handlers of the signals that it manages, unless a script has changed them. */
static zend_signal_entry_t handlers[sizeof(SIGG(handlers)) / sizeof(*SIGG(handlers))];
#endif

void surus_php_after_fork(void)
{
#ifdef ZEND_SIGNALS
	memcpy(handlers, SIGG(handlers), sizeof(handlers));
#endif
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		surus_flags_save(fd);
	}
}

/* Tells PHP whether signal handlers have changed. Otherwise it would read seven handlers from the
 * kernel at each request (zend_signal_activate in Zend/zend_signal.c). */
static void report_signal_handlers(void)
{
#ifdef ZEND_SIGNALS
	bool changed = false;

	for (int signal = 1; signal < NSIG; signal++) {
		/* SIGPROF is PHP's own, for max_execution_time. */
		changed |= signal != SIGPROF && SIGG(handlers)[signal - 1].handler !=
		        handlers[signal - 1].handler;
	}
	SIGG(reset) = changed;
#endif
}

/* --- one request --- */

void surus_php_fill_request_info(void)
{
	const char *content_length = SURUS_VAR(surus_request, "CONTENT_LENGTH");
	const char *content_type = SURUS_VAR(surus_request, "CONTENT_TYPE");

	SG(server_context) = surus_request;
	SG(sapi_headers).http_response_code = 200;
	SG(request_info).request_method = SURUS_VAR(surus_request, "REQUEST_METHOD");
	SG(request_info).query_string = SURUS_VAR(surus_request, "QUERY_STRING");
	SG(request_info).request_uri = SURUS_VAR(surus_request, "SCRIPT_NAME");
	SG(request_info).path_translated = SURUS_VAR(surus_request, "SCRIPT_FILENAME");
	SG(request_info).content_type = content_type ? content_type : "";
	SG(request_info).content_length = content_length ? atol(content_length) : 0;
	php_handle_auth_data(SURUS_VAR(surus_request, "HTTP_AUTHORIZATION"));
}

/* The front end has checked, but may have been root, which the worker is not. The result is cached
 * for a second, as in the front end. */
static bool is_readable(const char *script)
{
	static char readable[MAXPATHLEN];
	static uint64_t until;
	uint64_t now = surus_clock_now();

	if (now < until && strcmp(script, readable) == 0) {
		return true;
	}
	if (access(script, R_OK) != 0) {
		return false;
	}
	until = now + 1000000;
	snprintf(readable, sizeof(readable), "%s", script);
	return true;
}

static void execute(const char *script)
{
	zend_file_handle file;
	char directory[MAXPATHLEN];
	const char *slash = strrchr(script, '/');
	size_t len = slash ? (size_t)(slash - script) : 0;

	if (!is_readable(script)) {
		SG(sapi_headers).http_response_code = errno == EACCES ? 403 : 404;
		php_printf(errno == EACCES ? "Access denied.\n" : "File not found.\n");
		return;
	}
	if (slash && len < sizeof(directory)) {
		memcpy(directory, script, len);
		directory[len] = '\0';
		if (chdir(len ? directory : "/") != 0) {
			/* As php_execute_script(): the script then runs in the current directory. */
		}
	}
	zend_stream_init_filename(&file, script);
	file.primary_script = 1;
	EG(exit_status) = 0;
	php_execute_script(&file);
	surus_error_header();
	zend_destroy_file_handle(&file);
}

void surus_php_serve(void)
{
	surus_outbox_begin(surus_request);
	zend_first_try {
		surus_php_fill_request_info();
		if (php_request_startup() == SUCCESS && !surus_request->is_body_cut) {
			surus_scoreboard_set_state(SURUS_RUNNING);
			zend_try {
				execute(SG(request_info).path_translated);
			} zend_end_try();
		}
	} zend_catch {
	} zend_end_try();
	report_signal_handlers();
	php_request_shutdown(NULL);
	if (surus_process->child) {
		/* _exit(): the exit handlers of libraries belong to the worker */
		_exit(EG(exit_status));
	}
	surus_flags_restore();
	SG(server_context) = NULL;
	surus_outbox_end(SURUS_COMPLETE, 0);
	surus_request_close(surus_request);
}
