/* Spdy's route on uWebSockets, through the C interface of its core. No Python runs: the registry
 * package socketify only delivers the library. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct us_socket_context_options_t {
	const char *key_file_name;
	const char *cert_file_name;
	const char *passphrase;
	const char *dh_params_file_name;
	const char *ca_file_name;
	const char *ssl_ciphers;
	int ssl_prefer_low_memory_usage;
};
typedef struct {
	int port;
	const char *host;
	int options;
} uws_app_listen_config_t;

void *uws_create_app(int ssl, struct us_socket_context_options_t options);
void uws_app_get(int ssl, void *app, const char *pattern, void (*handler)(void *, void *, void *),
                 void *user_data);
void uws_app_listen_with_config(int ssl, void *app, uws_app_listen_config_t config,
                                void (*handler)(void *, uws_app_listen_config_t, void *),
                                void *user_data);
void uws_app_run(int ssl, void *app);
void uws_res_write_header(int ssl, void *response, const char *key, size_t key_length,
                          const char *value, size_t value_length);
void uws_res_end(int ssl, void *response, const char *data, size_t length, bool close);

static void hello(void *response, void *request, void *user_data)
{
	static const char name[] = "Content-Type", json[] = "application/json";
	char body[64];
	/* Made for each request, as the others encode theirs. */
	int length = snprintf(body, sizeof(body), "{\"message\":\"%s\"}", "Hello World!");

	(void)request;
	(void)user_data;
	uws_res_write_header(0, response, name, sizeof(name) - 1, json, sizeof(json) - 1);
	uws_res_end(0, response, body, (size_t)length, false);
}

static void listening(void *socket, uws_app_listen_config_t config, void *user_data)
{
	(void)user_data;
	if (!socket) {
		fprintf(stderr, "cannot listen on port %d\n", config.port);
		exit(1);
	}
}

int main(int count, char **words)
{
	struct us_socket_context_options_t plain;
	uws_app_listen_config_t config = {atoi(count > 1 ? words[1] : "0"), "127.0.0.1", 0};
	void *app;

	memset(&plain, 0, sizeof(plain));
	app = uws_create_app(0, plain);
	uws_app_get(0, app, "/", hello, NULL);
	uws_app_listen_with_config(0, app, config, listening, NULL);
	uws_app_run(0, app);
	return 0;
}
