/* Keeps what the boot reports about its warm-ups. */
#include "app/warmup_report.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/settings.h"

/* Pairs of a warm-up's number, from 1, and the reason, separated by commas. Learned pages come
 * first. The last of more than a hundred may be missing. */
static char left_out[2048];
static char created[1024]; /* one line */
static int count;

void surus_warmup_report_created(const char *text, size_t len)
{
	size_t to = 0;

	for (size_t at = 0; at < len && to < sizeof(created) - 1; at++) {
		created[to++] = iscntrl((unsigned char)text[at]) ? ' ' : text[at];
	}
	created[to] = '\0';
}

void surus_warmup_report_left_out(int number, const char *reason)
{
	char text[64];
	const char *separator = left_out[0] ? "," : "";
	int size = snprintf(text, sizeof(text), "%s%d:%s", separator, number, reason);
	size_t len = strlen(left_out);

	if ((size_t)size < sizeof(text) && len + (size_t)size < sizeof(left_out)) {
		memcpy(left_out + len, text, (size_t)size + 1);
	}
}

void surus_warmup_report_count(int warm_ups)
{
	count = warm_ups;
}

const char *surus_warmup_report_lines(void)
{
	enum { OTHERS = 512 }; /* Surus passes less */
	static char lines[sizeof(left_out) + sizeof(created) + OTHERS + 64];
	const char *others = surus_settings.left_to_others;

	snprintf(lines, sizeof(lines), "warm_ups=%d\nleft_out=%s\ncreated=%s\nleft_to_others=%.*s\n",
	        count, left_out, created, OTHERS, others ? others : "");
	return lines;
}
