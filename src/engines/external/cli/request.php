<?php

namespace Surus\Cli {

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
}
