/* Entry point of surus-php, the program that embeds PHP; Surus starts it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include <php_version.h>

#include "base/descriptors.h"
#include "run.h"

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--version") == 0) {
		printf("surus-php %s (built for PHP %s)\n", SURUS_VERSION, PHP_VERSION);
		return 0;
	}
	if (argc != 2 || strcmp(argv[1], "master") != 0 || fcntl(SURUS_FD_SETTINGS, F_GETFD) < 0) {
		fprintf(stderr, "surus-php: started by surus only; run `surus serve` instead\n");
		return 64;
	}
	return surus_master_run(argv[0]);
}
