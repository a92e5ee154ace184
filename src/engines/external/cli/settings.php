<?php

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
}
