<?php

// Entry point for events of AWS Lambda that are not HTTP. SURUS_HANDLER names the file that returns
// the handler.

(static function (): void {
    $file = (string) ($_SERVER['SURUS_HANDLER'] ?? getenv('SURUS_HANDLER'));
    $file = realpath($file) ?: $file;

    // As on the command line, relative paths are those of the project.
    $project = getenv('SURUS_PROJECT');
    if (false !== $project) {
        chdir($project);
    }
    // These constants exist, too. Standard input is empty on Surus's own engines; in php-cgi it is
    // the event, in php-fpm a socket. Standard output of php-cgi is the response.
    $input = function_exists('surus_serve') ? 'php://stdin' : 'php://memory';
    defined('STDIN') || define('STDIN', fopen($input, 'r'));
    defined('STDOUT') || define('STDOUT', fopen('php://stderr', 'w'));
    defined('STDERR') || define('STDERR', fopen('php://stderr', 'w'));

    // The application's autoloader, if it has one: the nearest above the handler.
    for ($directory = dirname($file); ; $directory = dirname($directory)) {
        if (is_file("$directory/vendor/autoload.php")) {
            require_once "$directory/vendor/autoload.php";
            break;
        }
        if (dirname($directory) === $directory || '.' === $directory) {
            break;
        }
    }
    // Registered last, so that the application's version of this package wins.
    spl_autoload_register(static function (string $class): void {
        if (
            str_starts_with($class, 'Surus\\')
                && is_file(
                    $file = dirname(__DIR__).'/src/'.strtr(substr($class, 6), '\\', '/').'.php'
                )
        ) {
            require $file;
        }
    });

    Surus\Lambda\Runner::serve($file);
})();
