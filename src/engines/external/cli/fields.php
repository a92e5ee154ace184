<?php

namespace Surus\Cli {

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
}
