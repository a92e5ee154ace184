<?php

namespace Surus\Cli {

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
}
