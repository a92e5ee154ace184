/* Logs the backtrace of a slow request, which goes on.
 *
 * Surus writes the request's tag into this worker's line of the scoreboard, then sets PHP's
 * interrupt flag through /proc/PID/mem. No signal is sent, because a handler would cut sleep() and
 * poll(2) short (docs/internals/decisions.md). PHP's virtual machine finds the flag at its next
 * loop or call. The text is made without PHP's allocator: a backtrace must not exceed
 * memory_limit. */
#include "php/slow_request.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <php.h>

#include "base/process_state.h"
#include "base/scoreboard_layout.h"
#include "ipc/outbox.h"
#include "ipc/request_decode.h"
#include "ipc/request_status.h"

enum {
	MAX_TEXT = 8192, /* bytes of a message */
	MAX_NAME = 512, /* bytes of a path or of a name */
	MAX_FRAMES = 64,
};

_Static_assert(sizeof(zend_atomic_bool) == 1, "Surus writes one byte");

static uint32_t logged; /* tag of the request whose backtrace has been logged */

struct text {
	char bytes[MAX_TEXT];
	size_t len;
};

static void put(struct text *text, const char *words)
{
	size_t len = strlen(words), room = MAX_TEXT - text->len;

	len = len < room ? len : room;
	memcpy(text->bytes + text->len, words, len);
	text->len += len;
}

static void put_number(struct text *text, unsigned long number)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%lu", number);
	put(text, digits);
}

/* A name that the script has chosen must not look like another line. Names of anonymous classes end
 * here at their NUL byte, as in PHP's own backtraces. */
static void put_name(struct text *text, const zend_string *name)
{
	char safe[MAX_NAME + 1];
	size_t len = 0;

	for (const char *from = ZSTR_VAL(name); *from && len < MAX_NAME; from++) {
		safe[len++] = (unsigned char)*from < ' ' || *from == 0x7f ? '?' : *from;
	}
	safe[len] = '\0';
	put(text, safe);
}

/* The frame, or the nearest one around it that belongs to a function. */
static zend_execute_data *with_function(zend_execute_data *frame)
{
	while (frame && !frame->func) {
		frame = frame->prev_execute_data;
	}
	return frame;
}

static bool is_user_code(const zend_execute_data *frame)
{
	return ZEND_USER_CODE(frame->func->type);
}

static const zend_op *current(const zend_execute_data *frame)
{
	const zend_op *opline = frame->opline;

	if (!opline) {
		return frame->func->op_array.opcodes;
	}
	if (opline->opcode == ZEND_HANDLE_EXCEPTION && EG(opline_before_exception)) {
		return EG(opline_before_exception);
	}
	return opline;
}

/* The line that runs. Before PHP 8.4, the interrupt that follows a call of an internal function is
 * handled at the instruction behind the call. The call is the one that took long. */
static uint32_t running_line(const zend_execute_data *frame)
{
	const zend_op *opline = current(frame);
#if PHP_VERSION_ID < 80400
	if (opline > frame->func->op_array.opcodes) {
		switch (opline[-1].opcode) {
		case ZEND_DO_ICALL:
		case ZEND_DO_FCALL:
		case ZEND_DO_FCALL_BY_NAME:
			return opline[-1].lineno;
		}
	}
#endif
	return opline->lineno;
}

static void put_position(struct text *text, zend_execute_data *frame)
{
	while ((frame = with_function(frame)) && !is_user_code(frame)) {
		frame = frame->prev_execute_data;
	}
	if (frame) {
		put(text, "at ");
		put_name(text, frame->func->op_array.filename);
		put(text, ":");
		put_number(text, running_line(frame));
		put(text, "\n");
	}
}

/* How a file came to run: its frame has no function's name. */
static const char *inclusion(const zend_execute_data *caller)
{
	const zend_op *opline = is_user_code(caller) ? current(caller) : NULL;

	if (!opline || opline->opcode != ZEND_INCLUDE_OR_EVAL) {
		return "include()";
	}
	switch (opline->extended_value) {
	case ZEND_EVAL:
		return "eval()";
	case ZEND_INCLUDE_ONCE:
		return "include_once()";
	case ZEND_REQUIRE:
		return "require()";
	case ZEND_REQUIRE_ONCE:
		return "require_once()";
	default:
		return "include()";
	}
}

/* A line as in PHP's backtraces: the function, and where it was called. */
static void put_call(struct text *text, const zend_execute_data *frame,
        const zend_execute_data *caller)
{
	const zend_function *function = frame->func;

	if (is_user_code(caller)) {
		put_name(text, caller->func->op_array.filename);
		put(text, "(");
		put_number(text, current(caller)->lineno);
		put(text, "): ");
	} else {
		put(text, "[internal function]: ");
	}
	if (!function->common.function_name) {
		put(text, inclusion(caller));
		put(text, "\n");
		return;
	}
	if (function->common.scope) {
		put_name(text, function->common.scope->name);
		put(text, Z_TYPE(frame->This) == IS_OBJECT ? "->" : "::");
	}
	put_name(text, function->common.function_name);
	put(text, "()\n");
}

static void put_backtrace(struct text *text)
{
	zend_execute_data *frame = with_function(EG(current_execute_data));

	put_position(text, frame);
	for (unsigned number = 0; frame; number++) {
		zend_execute_data *caller = with_function(frame->prev_execute_data);

		put(text, "#");
		put_number(text, number);
		put(text, " ");
		if (number == MAX_FRAMES) {
			put(text, "and others, which called these");
			return;
		}
		if (caller) {
			put_call(text, frame, caller);
		} else {
			put(text, "{main}");
		}
		frame = caller;
	}
}

uintptr_t surus_slow_request_flag(void)
{
	return (uintptr_t)&EG(vm_interrupt);
}

void surus_slow_request_check(void)
{
	const struct surus_request *request = surus_request;
	struct text text = {.len = 0};

	if (!request->id || logged == request->tag || surus_request_status_has_stop() ||
	        atomic_load_explicit(&surus_process->line->slow, memory_order_relaxed) !=
	                request->tag) {
		return;
	}
	logged = request->tag;
	put(&text, "Slow request, still running. Stack trace:\n");
	put_backtrace(&text);
	surus_outbox_log(text.bytes, text.len);
}
