<?php
/**
 * Runs a script under `php`, which has no HTTP support, with the behaviour of php-cgi.
 *
 * cli.rs joins this file and those of cli/, this one last: `php -f` takes one file, and scripts
 * would see each further one in get_included_files():
 *
 *     php -d auto_prepend_file= -d auto_append_file= -d session.auto_start=0 -f cli.php
 *
 * The functions of cli.functions are disabled, so that those of cli/functions.php replace them.
 * Descriptor 0 is the request body, a file at its beginning; 3 has the CGI variables as
 * `NAME=VALUE\0`; 4 takes the response headers, and 1 the body.
 *
 * The driver writes the headers when PHP would send them: at the first unbuffered output, or after
 * shutdown functions, destructors and output buffers at exit. A process that exits without headers
 * has crashed.
 *
 * Unavoidable differences from php-cgi:
 * - PHP_SAPI is `cli`, phpinfo() prints text, STDIN (at its end), STDOUT and STDERR exist, and
 *   backtraces and get_included_files() begin with this file.
 * - filter_input() and filter_has_var() find nothing, because PHP's own copy of the variables is
 *   read-only.
 * - Errors in a header or the body are an E_USER_WARNING that names a line of this file.
 * - ob_gzhandler() and zlib.output_compression do not compress, so no header is missing. The header
 *   of mb_output_handler() is missing.
 * - The body of a response to HEAD is not suppressed.
 * - ini_get() of output_buffering, register_argc_argv and max_input_time returns the CLI's values.
 *   .user.ini cannot set max_input_vars, max_input_nesting_level and short_open_tag.
 * - A session that is destroyed before any header is set or listed leaves no cookie. A session that
 *   is opened again does not set its cache headers again.
 * - http_response_code() in a shutdown function also takes effect after a fatal error.
 * - exit() in a shutdown function prevents the later ones, including the one that deletes uploads.
 */

namespace Surus\Cli {

    /** Prepares the request and sets the superglobals; nothing else remains in the global scope. */
    function start(): void
    {
        Head::begin();
        Request::begin();
        \register_shutdown_function(static function () {
            Session::follow();
            // Run after the functions that the script has registered.
            \register_shutdown_function(static function () {
                Session::follow();
                Head::end();
                Uploads::remove();
            });
        });

        $script = Request::script();
        if (!\is_file($script) || !\is_readable($script)) {
            [$status, $reason] = \is_file($script)
                ? [403, 'Access denied.']
                : [404, 'File not found.'];
            \http_response_code($status);
            exit("$reason\n");
        }
        \chdir(\dirname($script));
        Settings::apply();
        // Must run before any warning, because a warning would send the headers.
        if (($size = (int) Settings::get('output_buffering')) && \ob_get_level() === 0) {
            \ob_start(null, $size > 1 ? $size : 0);
        }
        Request::fill();
        if (Settings::get('session.auto_start')) {
            \session_start();
        }
    }

    function warn(string $message): bool
    {
        \trigger_error($message, \E_USER_WARNING);
        return false;
    }
}

namespace {

    use Surus\Cli\{Request, Settings};

    Surus\Cli\start();
    if (Settings::file('auto_prepend_file') !== '') {
        require Settings::file('auto_prepend_file');
    }
    require Request::script();
    if (Settings::file('auto_append_file') !== '') {
        require Settings::file('auto_append_file');
    }
}
