<?php

namespace Surus\Cli {

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
