<?php
/**
 * Runs a script under `php`, which has no HTTP support, with the behaviour of php-cgi. It is one
 * file because `php -f` takes one, and scripts would see each further one in get_included_files():
 *
 *     php -d auto_prepend_file= -d auto_append_file= -d session.auto_start=0 -f cli.php
 *
 * The functions of cli.functions are disabled, so that those below replace them. Descriptor 0 is
 * the request body, a file at its beginning; 3 has the CGI variables as `NAME=VALUE\0`; 4 takes the
 * response headers, and 1 the body.
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

    /** Settings that the CLI or the options above override in php.ini, with PHP's defaults. */
    const OVERRIDDEN = [
        'auto_append_file' => '',
        'auto_prepend_file' => '',
        'html_errors' => '1',
        'implicit_flush' => '',
        'max_execution_time' => '30',
        'output_buffering' => '0',
        'register_argc_argv' => '1',
        'session.auto_start' => '',
    ];

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

    /** The settings of a web server: removes the CLI's overrides and applies .user.ini. */
    final class Settings
    {
        private static array $files = [];
        private static array $user = [];

        public static function get(string $name): string
        {
            $written = static fn () => self::$files[$name] ?? OVERRIDDEN[$name];
            return self::$user[$name] ?? (isset(OVERRIDDEN[$name]) ? $written() : \ini_get($name));
        }

        public static function size(string $name): int
        {
            return \ini_parse_quantity(self::get($name));
        }

        public static function set(array $settings): void
        {
            self::$user = \array_replace(self::$user, $settings);
        }

        /** PHP also accepts `none` for no file. */
        public static function file(string $name): string
        {
            return \strcasecmp(self::get($name), 'none') ? self::get($name) : '';
        }

        public static function apply(): void
        {
            $files = [
                (string) \php_ini_loaded_file(),
                ...\explode(',', (string) \php_ini_scanned_files())
            ];
            self::$files = self::read(\array_map('trim', $files));
            self::$user = self::read(self::userFiles());
            // A php.ini may disable ini_set().
            if (\function_exists('ini_set')) {
                $now = \array_fill_keys(
                    ['html_errors', 'implicit_flush', 'max_execution_time'],
                    null
                );
                foreach ($now + self::$user as $name => $_) {
                    \ini_set($name, self::get($name));
                }
            }
            \ob_implicit_flush((bool) Settings::get('implicit_flush'));
        }

        private static function read(array $files): array
        {
            $settings = [];
            foreach ($files as $file) {
                // The file may lie outside open_basedir.
                if (@\is_file($file)) {
                    $settings = \array_replace($settings, self::parse($file));
                }
            }
            \error_clear_last();
            return \array_filter($settings, 'is_scalar');
        }

        /** As php-fpm, keeps the lines before a syntax error, and says so in the log. */
        private static function parse(string $file): array
        {
            $found = @\parse_ini_file($file);
            $lines = $found === false ? \explode("\n", (string) @\file_get_contents($file)) : [];
            $said = \trim(\error_get_last()['message'] ?? '');
            if ($found === false) {
                \file_put_contents('php://stderr', "PHP:  $said\n");
            }
            while ($found === false) {
                // The message ends with the number of the line, or of the next one.
                $line = (int) \substr((string) \strrchr($said, ' '), 1);
                $lines = \array_slice($lines, 0, \max(0, \min($line, \count($lines)) - 1));
                $found = @\parse_ini_string(\implode("\n", $lines));
                $said = \trim(\error_get_last()['message'] ?? '');
            }
            return $found;
        }

        /** The .user.ini files from the document root down to the script's directory. */
        private static function userFiles(): array
        {
            if (($name = \ini_get('user_ini.filename')) === '') {
                return [];
            }
            $root = \rtrim(Request::variable('DOCUMENT_ROOT'), '/');
            $below = \dirname(Request::script());
            $directories = [$below];
            if ($root !== '' && \str_starts_with("$below/", "$root/")) {
                while ($below !== $root) {
                    \array_unshift($directories, $below = \dirname($below));
                }
            }
            return \array_map(static fn ($directory) => "$directory/$name", $directories);
        }
    }

    /** The request: CGI variables, body and superglobals. */
    final class Request
    {
        private static array $variables = [];

        public static function begin(): void
        {
            foreach (\explode("\0", \file_get_contents('php://fd/3')) as $pair) {
                [$name, $value] = \explode('=', $pair, 2) + [1 => ''];
                if ($name !== '') {
                    self::$variables[$name] = $value;
                }
            }
        }

        public static function variable(string $name): string
        {
            return self::$variables[$name] ?? '';
        }

        public static function script(): string
        {
            return self::variable('SCRIPT_FILENAME');
        }

        /** The request headers, with names derived from the CGI variables as in php-cgi. */
        public static function headers(): array
        {
            $headers = [];
            foreach (self::$variables as $name => $value) {
                $field = match (true) {
                    $name === 'CONTENT_TYPE', $name === 'CONTENT_LENGTH' => $name,
                    \str_starts_with($name, 'HTTP_') => \substr($name, 5),
                    default => null,
                };
                if ($field !== null) {
                    $headers[\ucwords(\strtolower(\strtr($field, '_', '-')), '-')] = $value;
                }
            }
            return $headers;
        }

        public static function fill(): void
        {
            $started = [
                'REQUEST_TIME_FLOAT' => $_SERVER['REQUEST_TIME_FLOAT'],
                'REQUEST_TIME' => $_SERVER['REQUEST_TIME']
            ];
            // In CGI the variables are also the environment. A php.ini may disable putenv().
            foreach (\function_exists('putenv') ? self::$variables : [] as $name => $value) {
                // Other programs would use this header as their proxy (CVE-2016-5385).
                if ($name !== 'HTTP_PROXY') {
                    \putenv("$name=$value");
                }
            }
            $environment = self::$variables + \getenv();
            $form = self::form();
            $order = \strtoupper(Settings::get('variables_order'));
            $_ENV = \str_contains($order, 'E') ? $environment : [];
            $_GET = \str_contains($order, 'G') ? Fields::query(self::variable('QUERY_STRING')) : [];
            $_POST = \str_contains($order, 'P') ? $form['post'] : [];
            $_COOKIE = \str_contains($order, 'C')
                ? Fields::cookies(self::variable('HTTP_COOKIE'))
                : [];
            $_FILES = $form['files'];
            $_REQUEST = [];
            $of = ['G' => $_GET, 'P' => $_POST, 'C' => $_COOKIE];
            foreach (\str_split(\strtoupper(Settings::get('request_order')) ?: $order) as $source) {
                $_REQUEST = \array_replace_recursive($_REQUEST, $of[$source] ?? []);
            }
            $_SERVER = [
                'PHP_SELF' => self::variable('SCRIPT_NAME') . self::variable('PATH_INFO')
            ] + $started;
            $_SERVER = \array_replace($environment, $_SERVER, self::credentials());
            unset($GLOBALS['argv'], $GLOBALS['argc']);
            if (Settings::get('register_argc_argv')) {
                $query = self::variable('QUERY_STRING');
                $_SERVER['argv'] = $query === '' ? [] : \explode('+', $query);
                $_SERVER['argc'] = \count($_SERVER['argv']);
            }
            if (!\str_contains($order, 'S')) {
                $_SERVER = [];
            }
        }

        private static function credentials(): array
        {
            [$scheme, $rest] = \explode(' ', self::variable('HTTP_AUTHORIZATION'), 2) + [1 => ''];
            $scheme = \strtolower($scheme);
            if ($scheme === 'digest') {
                return ['PHP_AUTH_DIGEST' => $rest];
            }
            $basic = $scheme === 'basic' ? \explode(':', (string) \base64_decode($rest), 2) : [];
            return isset($basic[1])
                ? ['PHP_AUTH_USER' => $basic[0]] + \array_filter(
                    ['PHP_AUTH_PW' => $basic[1]],
                    'strlen'
                )
                : [];
        }

        /**
         * Reads a form body before the script runs, as PHP does; other bodies stay in php://input.
         */
        private static function form(): array
        {
            if (
                self::variable('REQUEST_METHOD') === 'POST' && \ini_get('enable_post_data_reading')
            ) {
                [$length, $limit] = [
                    (int) self::variable('CONTENT_LENGTH'),
                    Settings::size('post_max_size')
                ];
                if ($limit > 0 && $length > $limit) {
                    warn("POST Content-Length of $length bytes exceeds the limit of $limit bytes");
                } else {
                    $form = Fields::body(self::variable('CONTENT_TYPE'));
                }
            }
            // A multipart body can be read only once.
            if (!isset($form['files'])) {
                self::offerBody();
            }
            return ($form ?? []) + ['post' => [], 'files' => []];
        }

        /**
         * Fills php://input: PHP keeps its content in a temporary stream, which only the list of
         * all streams shows.
         */
        private static function offerBody(): void
        {
            $input = \fopen('php://input', 'r');
            foreach (\get_resources('stream') as $stream) {
                if (\stream_get_meta_data($stream)['stream_type'] === 'TEMP') {
                    \stream_copy_to_stream(\STDIN, $stream);
                    break;
                }
            }
        }
    }

    /** Parses form fields as PHP does: `a[b]=c` creates an array. */
    final class Fields
    {
        public static function query(string $text): array
        {
            return self::split($text, Settings::get('arg_separator.input'));
        }

        /** Splits at these separators, regardless of arg_separator.input. */
        private static function split(string $text, string $separators): array
        {
            $own = \ini_get('arg_separator.input');
            if ($separators !== $own) {
                $escaped = [];
                foreach (\str_split($own) as $separator) {
                    $escaped[$separator] = \rawurlencode($separator);
                }
                $text = \strtr(
                    $text,
                    \array_fill_keys(\str_split($separators), $own[0]) + $escaped
                );
            }
            \parse_str($text, $fields);
            return $fields;
        }

        /** @param list<array{string, string}> $fields */
        private static function named(array $fields): array
        {
            $pair = static fn ($field) => \rawurlencode($field[0]) . '=' . \rawurlencode($field[1]);
            return self::split(\implode('&', \array_map($pair, $fields)), '&');
        }

        public static function cookies(string $header): array
        {
            $fields = $seen = [];
            foreach (\explode(';', $header) as $pair) {
                [$name, $value] = \explode('=', \ltrim($pair), 2) + [1 => ''];
                $key = \strtr($name, ' .', '__');
                // The first of equal names wins: it has the longer path (RFC 6265, 5.4).
                if ($name !== '' && !isset($seen[$key])) {
                    $seen[\strstr($key, '[', true) ?: $key] = true;
                    $fields[] = [$name, \rawurldecode($value)];
                }
            }
            return self::named($fields);
        }

        /** Returns `post` and `files` if the body is a form. */
        public static function body(string $contentType): array
        {
            switch (\strtolower(\substr($contentType, 0, \strcspn($contentType, ';, ')))) {
                case 'application/x-www-form-urlencoded':
                    $text = \stream_get_contents(\STDIN);
                    // Keep the body for php://input.
                    \rewind(\STDIN);
                    return ['post' => self::split($text, '&')];
                case 'multipart/form-data':
                    return self::multipart($contentType);
                default:
                    return [];
            }
        }

        private static function multipart(string $contentType): array
        {
            $fields = [];
            $nameless = 0;
            if (!\preg_match('/boundary[^=]*=(?:"([^"]+)"|([^",;]+))/i', $contentType, $found)) {
                warn('Missing boundary in multipart/form-data POST data');
                return [];
            }
            $parts = new Parts(\STDIN, \end($found));
            // Unknown to PHP before 8.2.3.
            $limit = (int) (Settings::get('max_multipart_body_parts') ?: -1);
            if ($limit < 0) {
                $limit = (int) Settings::get('max_input_vars') + (int) Settings::get(
                    'max_file_uploads'
                );
            }
            for ($count = 1; $headers = $parts->next(); $count++) {
                if ($count > $limit) {
                    warn(
                        "Multipart body parts limit exceeded $limit. To increase the limit change max_multipart_body_parts."
                    );
                    break;
                }
                [
                    'name' => $name,
                    'filename' => $filename
                ] = self::disposition($headers['content-disposition'] ?? '');
                if ($filename !== null) {
                    $name ??= (string) $nameless++;
                    Uploads::take($parts, $name, $filename, $headers['content-type'] ?? '');
                } elseif ($name !== null) {
                    $fields[] = [
                        $name,
                        $value = \implode('', \iterator_to_array($parts->content(), false))
                    ];
                    if (!\strcasecmp($name, 'MAX_FILE_SIZE')) {
                        Uploads::$formLimit = (int) $value;
                    }
                } elseif (isset($headers['content-disposition'])) {
                    warn('File Upload Mime headers garbled');
                    break;
                }
            }
            return ['post' => self::named($fields), 'files' => Uploads::$files];
        }

        private static function disposition(string $header): array
        {
            $parameters = ['name' => null, 'filename' => null];
            $value = '"((?:\\\\.|[^"\\\\])*+)"?|\'((?:\\\\.|[^\'\\\\])*+)\'?|([^;\s]*)';
            \preg_match_all(
                "/;\s*(name|filename)\s*=\s*(?|$value)/is",
                $header,
                $found,
                \PREG_SET_ORDER
            );
            foreach ($found as [, $name, $text]) {
                // Other backslashes belong to a path.
                $parameters[\strtolower($name)] = \preg_replace('/\\\\([\\\\"\'])/', '$1', $text);
            }
            return $parameters;
        }
    }

    /** Reads a multipart body part by part, without loading it completely. */
    final class Parts
    {
        // Starts with a line break, so that the first boundary needs no special case.
        private string $buffer = "\n";
        private string $boundary;

        public function __construct(private $in, string $boundary)
        {
            $this->boundary = "\n--$boundary";
        }

        /**
         * Moves to the next part. Returns its headers by lower-case name, with '' for the blank
         * line, or [] at the end.
         */
        public function next(): array
        {
            do {
                foreach ($this->content() as $_);
                if ($this->buffer === '') {
                    return [];
                }
                $this->buffer = \substr($this->buffer, \strlen($this->boundary));
            } while ($this->line() !== '');

            $headers = ['' => ''];
            $name = '';
            while (($line = $this->line()) !== '') {
                if (\strspn($line, " \t")) {
                    $headers[$name] .= $line;
                } else {
                    [$name, $value] = \explode(':', $line, 2) + [1 => ''];
                    $name = \strtolower($name);
                    $headers[$name] = \ltrim($value);
                }
            }
            return $headers;
        }

        /** Yields the rest of the part in pieces. */
        public function content(): \Generator
        {
            return $this->before($this->boundary);
        }

        private function line(): string
        {
            $line = \implode('', \iterator_to_array($this->before("\n"), false));
            $this->buffer = \substr($this->buffer, 1);
            return $line;
        }

        /**
         * Reads up to `$mark`, which stays in the buffer, or to the end, which leaves the buffer
         * empty.
         */
        private function before(string $mark): \Generator
        {
            while (($at = \strpos($this->buffer, $mark)) === false) {
                // The mark and the carriage return before it may be split over two reads.
                $sure = \strlen($this->buffer) - \strlen($mark);
                if ($sure > 0) {
                    yield \substr($this->buffer, 0, $sure);
                    $this->buffer = \substr($this->buffer, $sure);
                }
                $more = \fread($this->in, 1 << 16);
                if ((string) $more === '') {
                    yield $this->buffer;
                    $this->buffer = '';
                    return;
                }
                $this->buffer .= $more;
            }
            if ($at > 0) {
                yield \substr($this->buffer, 0, $this->buffer[$at - 1] === "\r" ? $at - 1 : $at);
            }
            $this->buffer = \substr($this->buffer, $at);
        }

        public function ended(): bool
        {
            return $this->buffer === '';
        }
    }

    /** Uploaded files; deletes those that the script did not move. */
    final class Uploads
    {
        /** The value of $_FILES. */
        public static array $files = [];
        /** The form field MAX_FILE_SIZE. */
        public static int $formLimit = 0;
        private static array $paths = [];
        private static ?int $left = null;

        /** Stores a part as a file unless the limit is reached. */
        public static function take(
            Parts $parts,
            string $field,
            string $filename,
            string $type
        ): void
        {
            self::$left ??= \ini_get('file_uploads') ? (int) Settings::get('max_file_uploads') : -1;
            if (self::$left <= 0) {
                if (self::$left-- === 0) {
                    warn('Maximum number of allowable file uploads has been exceeded');
                }
                return;
            }
            // Like PHP, reject this and all later files if brackets do not match.
            if (!\preg_match('/^([^[\]]+)((?:\[[^[\]]*\])*)$/D', $field, $name)) {
                self::$left = -1;
                return;
            }
            [$path, $size, $error] = ['', 0, \UPLOAD_ERR_NO_FILE];
            if ($filename !== '') {
                self::$left--;
                [$path, $size, $error] = self::store($parts);
            }
            $described = [
                'name' => \substr(\strrchr('/' . \strtr($filename, '\\', '/'), '/'), 1),
                'full_path' => $filename,
                'type' => $error ? '' : \strstr("$type;", ';', true),
                'tmp_name' => $path,
                'error' => $error,
                'size' => $size,
            ];
            [$base] = \array_keys(Fields::query(\rawurlencode($name[1])));
            \preg_match_all('/\[([^\]]*)/', $name[2], $path);
            foreach ($described as $key => $value) {
                self::put($value, [$base, $key, ...$path[1]]);
            }
        }

        /** `a[]` appends to the array, as in other fields. */
        private static function put(string|int $value, array $path): void
        {
            $place = &self::$files;
            foreach ($path as $key) {
                $place = \is_array($place) ? $place : [];
                if ($key === '') {
                    $place = &$place[];
                } else {
                    $place = &$place[$key];
                }
            }
            $place = $value;
        }

        private static function store(Parts $parts): array
        {
            $limit = Settings::size('upload_max_filesize');
            // Falls back to the system's directory, with a notice.
            $path = @\tempnam(\ini_get('upload_tmp_dir') ?: \sys_get_temp_dir(), 'php');
            if ($path === false || !($file = \fopen($path, 'w'))) {
                warn('File upload error - unable to create a temporary file');
                return ['', 0, \UPLOAD_ERR_NO_TMP_DIR];
            }
            self::$paths[$path] = true;
            [$size, $error] = [0, \UPLOAD_ERR_OK];
            foreach ($parts->content() as $piece) {
                $size += \strlen($piece);
                $error = match (true) {
                    $limit > 0 && $size > $limit => \UPLOAD_ERR_INI_SIZE,
                    self::$formLimit > 0 && $size > self::$formLimit => \UPLOAD_ERR_FORM_SIZE,
                    @\fwrite($file, $piece) !== \strlen($piece) => \UPLOAD_ERR_CANT_WRITE,
                    default => \UPLOAD_ERR_OK,
                };
                if ($error) {
                    break;
                }
            }
            \fclose($file);
            $error = $error ?: ($parts->ended() ? \UPLOAD_ERR_PARTIAL : \UPLOAD_ERR_OK);
            if ($error) {
                \unlink($path);
                unset(self::$paths[$path]);
                return ['', 0, $error];
            }
            return [$path, $size, $error];
        }

        public static function has(string $path): bool
        {
            return isset(self::$paths[$path]);
        }

        public static function move(string $from, string $to): bool
        {
            if (!self::has($from)) {
                return false;
            }
            if (@\rename($from, $to)) {
                // The temporary file has mode 0600.
                @\chmod($to, 0666 & ~\umask());
            } elseif (\copy($from, $to)) {
                \unlink($from);
            } else {
                return warn("move_uploaded_file(): Unable to move \"$from\" to \"$to\"");
            }
            unset(self::$paths[$from]);
            return true;
        }

        public static function remove(): void
        {
            foreach (self::$paths as $path => $_) {
                @\unlink($path);
            }
        }
    }

    /**
     * The status and headers, by the rules of PHP's SAPI.c. PHP holds the code itself; see
     * http_response_code().
     */
    final class Head
    {
        private static array $lines = [];
        private static string $statusLine = '';
        private static int $statusCode = 0;
        private static bool $defaultType = true;
        /** Descriptor 4; null after the headers are written. */
        private static $to;
        /** The script's own callback, if it has replaced the driver's. */
        public static mixed $callback = null;

        public static function begin(): void
        {
            self::$to = \fopen('php://fd/4', 'w');
            if (\ini_get('expose_php')) {
                self::$lines[] = 'X-Powered-By: PHP/' . \PHP_VERSION;
            }
            // The CLI has no status. PHP changes 200 to 500 after a fatal error, as on a web
            // server.
            \http_response_code(200);
            \header_register_callback(new Sender());
        }

        /** Implements header(); returns false if PHP would reject it. */
        public static function put(string $line, bool $replace = true, int $code = 0): bool
        {
            if (!self::open()) {
                return false;
            }
            $line = \rtrim($line, " \t\n\r\v\f");
            if (\strpbrk($line, "\r\n") !== false) {
                return warn('Header may not contain more than a single header, new line detected');
            }
            if (\str_contains($line, "\0")) {
                return warn('Header may not contain NUL bytes');
            }
            if ($line === '') {
                return false;
            }
            if (!\strncasecmp($line, 'HTTP/', 5)) {
                self::status(\preg_match('/ (?! )(.*)/s', $line, $found) ? (int) $found[1] : 200);
                self::$statusLine = $line;
                return true;
            }
            [$name, $value] = \explode(':', $line, 2) + [1 => null];
            if ($value !== null) {
                $line = self::special($name, $value) ?? $line;
            }
            if ($code) {
                self::status($code);
            }
            if ($replace && $value !== null) {
                self::drop($name);
            }
            self::$lines[] = $line;
            return true;
        }

        /** Handles headers with a special meaning in PHP; returns the replacement, if any. */
        private static function special(string $name, string $value): ?string
        {
            switch (\strtolower($name)) {
                case 'content-type':
                    self::$defaultType = false;
                    $type = \ltrim($value, ' ');
                    $charset = \ini_get('default_charset');
                    if (
                        $charset !== ''
                            && \str_starts_with($type, 'text/')
                            && !\str_contains($type, 'charset=')
                    ) {
                        return "Content-type: $type;charset=$charset";
                    }
                    break;
                case 'location':
                    $now = \http_response_code();
                    if (($now < 300 || $now > 399) && $now !== 201) {
                        self::status(302);
                    }
                    break;
                case 'www-authenticate':
                    self::status(401);
            }
            return null;
        }

        public static function remove(?string $name): void
        {
            if (!self::open()) {
                return;
            }
            if ($name === null) {
                self::$lines = [];
            } elseif (\str_contains($name, ':')) {
                warn('Header to delete may not contain colon.');
            } else {
                self::drop($name);
            }
        }

        /** Removes lines with this prefix, such as `Set-Cookie: a=`, or with this complete name. */
        public static function drop(string $name, string $rest = ''): void
        {
            self::$lines = \array_values(self::without("$name:$rest"));
        }

        private static function without(string $start): array
        {
            return \array_filter(
                self::$lines,
                static fn ($line) => \strncasecmp($line, $start, \strlen($start)) !== 0
            );
        }

        public static function lines(): array
        {
            Session::follow();
            return self::$lines;
        }

        private static function status(int $code): void
        {
            if ($code !== \http_response_code()) {
                self::$statusLine = '';
                \http_response_code($code);
            }
            self::$statusCode = $code;
        }

        /** Whether headers can still be changed. */
        private static function open(): bool
        {
            if (\headers_sent($file, $line)) {
                $by = $file === '' ? '' : " by (output started at $file:$line)";
                return warn("Cannot modify header information - headers already sent$by");
            }
            Session::follow();
            return true;
        }

        public static function send(): void
        {
            if (!self::$to) {
                return;
            }
            Session::follow();
            [$type, $charset] = [\ini_get('default_mimetype'), \ini_get('default_charset')];
            if (self::$defaultType && $type !== '') {
                $isText = $charset !== '' && \str_starts_with($type, 'text/');
                self::$lines[] = "Content-type: $type" . ($isText ? "; charset=$charset" : '');
            }
            $code = \http_response_code();
            // No regular expressions: PHP may have freed their cache.
            $status = \array_diff_key(self::$lines, self::without('Status:'));
            $lines = self::without('Status:');
            if ($code === 304) {
                $lines = \array_intersect_key($lines, self::without('Content-Type:'));
            }
            // As in php-cgi, the script's own status line overrides a code that was set later.
            // However, it does not override the 500 of a fatal error if it is 200. Surus adds the
            // standard reason phrases.
            if (self::$statusLine !== '' && self::$statusCode !== 200 && $code !== 200) {
                \array_unshift($lines, 'Status:' . \strstr(self::$statusLine, ' '));
            } else {
                \array_unshift($lines, \reset($status) ?: "Status: $code");
            }
            \fwrite(self::$to, \implode("\r\n", $lines) . "\r\n\r\n");
            self::$to = null;
        }

        /**
         * Runs as the last shutdown function. Destructors and output buffers still follow and may
         * set headers.
         */
        public static function end(): void
        {
            // PHP runs the callback when output begins, and does not reveal which of several
            // callbacks it runs.
            while (self::$callback && \ob_get_level() > 0 && \ob_end_flush());
            if (\headers_sent()) {
                self::send();
            } elseif ($theirs = self::$callback) {
                \header_register_callback(static function () use ($theirs) {
                    $theirs();
                    self::send();
                });
            }
        }
    }

    /**
     * The header callback, which PHP calls as the last step before it sends the headers.
     *
     * PHP has only one callback. If the script registers another, PHP destroys this one during that
     * call.
     */
    final class Sender
    {
        public function __invoke(): void
        {
            Head::send();
        }

        public function __destruct()
        {
            $caller = \debug_backtrace(0, 2)[1] ?? null;
            if (($caller['function'] ?? '') === 'header_register_callback') {
                Head::$callback = $caller['args'][0];
            }
        }
    }

    /** The headers that session_start() would send; the CLI discards them. */
    final class Session
    {
        private static bool $limited = false;
        private static string $sent = '';
        private static bool $following = false;

        /** Checks, before headers are read or changed, whether a session has started. */
        public static function follow(): void
        {
            // PHP defines SID with the first session and never removes it.
            if (!\defined('SID') || self::$following || \headers_sent()) {
                return;
            }
            self::$following = true;
            $id = (string) \session_id();
            $known = self::$sent ?: $_COOKIE[\session_name()] ?? '';
            if ($id !== '' && $id !== $known && \ini_get('session.use_cookies')) {
                self::$sent = $id;
                $cookie = \session_get_cookie_params();
                $cookie['expires'] = $cookie['lifetime'] > 0 ? \time() + $cookie['lifetime'] : 0;
                Head::drop('Set-Cookie', ' ' . \session_name() . '=');
                Cookie::put(\session_name(), \urlencode($id), $cookie);
            }
            if (!self::$limited) {
                self::$limited = true;
                \array_map(Head::put(...), self::limits());
            }
            self::$following = false;
        }

        /** The headers of session_cache_limiter(). */
        private static function limits(): array
        {
            $date = static fn ($time) => \gmdate('D, d M Y H:i:s \G\M\T', $time);
            $age = \session_cache_expire() * 60;
            $modified = 'Last-Modified: ' . $date(\filemtime(Request::script()));
            $long_ago = 'Expires: Thu, 19 Nov 1981 08:52:00 GMT';
            $private = ["Cache-Control: private, max-age=$age", $modified];
            return match (\session_cache_limiter()) {
                'nocache' => [
                    $long_ago,
                    'Cache-Control: no-store, no-cache, must-revalidate',
                    'Pragma: no-cache'
                ],
                'private' => [$long_ago, ...$private],
                'private_no_expire' => $private,
                'public' => [
                    'Expires: ' . $date(\time() + $age),
                    "Cache-Control: public, max-age=$age",
                    $modified
                ],
                default => [],
            };
        }
    }

    /** Builds Set-Cookie headers. */
    final class Cookie
    {
        private const ATTRIBUTES = [
            'path' => 'path=',
            'domain' => 'domain=',
            'secure' => 'secure',
            'httponly' => 'HttpOnly',
            'samesite' => 'SameSite=',
            'partitioned' => 'Partitioned',
        ];
        private const WRONG = ",; \t\r\n\v\f";
        private const WRONG_SHOWN = '",", ";", " ", "\t", "\r", "\n", "\013", or "\014"';

        /**
         * Implements setcookie() and setrawcookie(); `$function` names the one called with these
         * arguments.
         */
        public static function set(
            string $function,
            string $name,
            string $value,
            array $options,
            int $count
        ): bool
        {
            if (\is_array($options['expires'])) {
                if ($count > 3) {
                    $third = 'argument #3 ($expires_or_options)';
                    throw new \ArgumentCountError(
                        "$function(): Expects exactly 3 arguments when $third is an array"
                    );
                }
                $options = self::options($function, $options['expires']);
            }
            self::check($function, $name, $value, $options);
            return self::put(
                $name,
                $function === 'setcookie' ? \rawurlencode($value) : $value,
                $options
            );
        }

        private static function options(string $function, array $given): array
        {
            $options = [];
            foreach ($given as $key => $value) {
                if (\is_int($key)) {
                    throw new \ValueError("$function(): option array cannot have numeric keys");
                }
                $options[\strtolower($key)] = match (\strtolower($key)) {
                    'expires' => (int) $value,
                    'path', 'domain', 'samesite' => (string) $value,
                    'secure', 'httponly' => (bool) $value,
                    'partitioned' => \PHP_VERSION_ID >= 80500
                        ? (bool) $value
                        : throw self::unknown($function, $key),
                    default => throw self::unknown($function, $key),
                };
            }
            return $options;
        }

        private static function unknown(string $function, string $key): \ValueError
        {
            return new \ValueError("$function(): option \"$key\" is invalid");
        }

        private static function check(
            string $function,
            string $name,
            string $value,
            array $options
        ): void
        {
            $must = \PHP_VERSION_ID >= 80400 ? 'must not' : 'cannot';
            $has = static fn (?string $text, string $more = '') => \strpbrk(
                (string) $text,
                self::WRONG . $more
            ) !== false;
            $raw = $function === 'setrawcookie';
            $late = $value !== '' && ($options['expires'] ?? 0) >= 253402300800;
            $unsafe = ($options['partitioned'] ?? false) && !($options['secure'] ?? false);
            $wrong = match (true) {
                $name === '' => "Argument #1 (\$name) $must be empty",
                $has($name, '=') => 'Argument #1 ($name) cannot contain "=", ' . self::WRONG_SHOWN,
                $raw && $has($value) => 'Argument #2 ($value) cannot contain ' . self::WRONG_SHOWN,
                $has($options['path'] ?? '') => '"path" option cannot contain ' . self::WRONG_SHOWN,
                $has($options['domain'] ?? '') => '"domain" option cannot contain '
                    . self::WRONG_SHOWN,
                $late => '"expires" option cannot have a year greater than 9999',
                $unsafe => '"partitioned" option cannot be used without "secure" option',
                default => null,
            };
            if ($wrong !== null) {
                throw new \ValueError("$function(): $wrong");
            }
        }

        public static function put(string $name, string $value, array $options): bool
        {
            // An empty value deletes the cookie.
            [$value, $expires] = $value === ''
                ? ['deleted', 1]
                : [$value, $options['expires'] ?? 0];
            $line = "Set-Cookie: $name=$value";
            if ($expires > 0) {
                $line .= \gmdate('; \e\x\p\i\r\e\s=D, d M Y H:i:s \G\M\T', $expires);
                $line .= '; Max-Age=' . \max(0, $expires - \time());
            }
            foreach (self::ATTRIBUTES as $option => $attribute) {
                if (($given = $options[$option] ?? '')) {
                    $line .= "; $attribute" . ($given === true ? '' : $given);
                }
            }
            return Head::put($line, false);
        }
    }
}

namespace {

    use Surus\Cli\{Cookie, Fields, Head, Request, Settings, Uploads};

    function header(string $header, bool $replace = true, int $response_code = 0): void
    {
        Head::put($header, $replace, $response_code);
    }

    function header_remove(?string $name = null): void
    {
        Head::remove($name);
    }

    function headers_list(): array
    {
        return Head::lines();
    }

    // Accepts null, as PHP's own functions do.
    function setcookie(
        string $name,
        ?string $value = '',
        array|int|null $expires_or_options = 0,
        ?string $path = '',
        ?string $domain = '',
        ?bool $secure = false,
        ?bool $httponly = false,
    ): bool {
        $options = compact(
            'path',
            'domain',
            'secure',
            'httponly'
        ) + ['expires' => $expires_or_options];
        return Cookie::set(__FUNCTION__, $name, (string) $value, $options, func_num_args());
    }

    function setrawcookie(
        string $name,
        ?string $value = '',
        array|int|null $expires_or_options = 0,
        ?string $path = '',
        ?string $domain = '',
        ?bool $secure = false,
        ?bool $httponly = false,
    ): bool {
        $options = compact(
            'path',
            'domain',
            'secure',
            'httponly'
        ) + ['expires' => $expires_or_options];
        return Cookie::set(__FUNCTION__, $name, (string) $value, $options, func_num_args());
    }

    function is_uploaded_file(string $filename): bool
    {
        return Uploads::has($filename);
    }

    function move_uploaded_file(string $from, string $to): bool
    {
        return Uploads::move($from, $to);
    }

    if (PHP_VERSION_ID >= 80400) {
        function request_parse_body(?array $options = null): array
        {
            Settings::set($options ?? []);
            rewind(STDIN);
            $form = Fields::body(Request::variable('CONTENT_TYPE'));
            if ($form === []) {
                throw new RequestParseBodyException(
                    'The request has no form of a type that is known'
                );
            }
            return [$form['post'], $form['files'] ?? []];
        }
    }

    function getallheaders(): array
    {
        return Request::headers();
    }

    function apache_request_headers(): array
    {
        return Request::headers();
    }

    function apache_response_headers(): array
    {
        $headers = [];
        foreach (Head::lines() as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            $headers[$name] = ltrim($value);
        }
        return $headers;
    }

    Surus\Cli\start();
    if (Settings::file('auto_prepend_file') !== '') {
        require Settings::file('auto_prepend_file');
    }
    require Request::script();
    if (Settings::file('auto_append_file') !== '') {
        require Settings::file('auto_append_file');
    }
}
