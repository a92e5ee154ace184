<?php

namespace Surus\Boot;

/** Code of WordPress's files that looks at the request, as functions that each request calls. */
final class WordPressCode
{
    /** Parts of `REPEATED`, which src/app/detect/wordpress.rs has, too. */
    private const VALUE = '\$_SERVER\s*\[\s*["\x27][A-Z0-9_]+["\x27]\s*\]';
    private const WORD =
        '\b(?i:isset|empty|strpos|stripos|str_contains|strtolower|true|false|and|or)\b';
    private const TEXT = '["\x27][A-Za-z0-9]*["\x27]|\b[0-9]+\b';
    private const SIGN = '[\s(),!=&|?<>-]';
    private const KEY = '\$_SERVER\s*\[\s*["\x27](?:HTTPS|SERVER_PORT)["\x27]\s*\]';

    private const CONDITION =
        '\bif\s*\((?:'.self::VALUE.'|'.self::WORD.'|'.self::TEXT.'|'.self::SIGN.')+\)\s*';
    private const SETS = self::KEY.'\s*=\s*(?:'.self::TEXT.'|[A-Za-z0-9]+)\s*;';
    private const REPEATED =
        '~(?:'.self::CONDITION.')?(?:\{\s*(?:'.self::SETS.'\s*)+\}|'.self::SETS.')~';

    /**
     * Of wp-config.php the statements that set HTTPS, perhaps if the proxy has it. Surus does not
     * boot a WordPress whose wp-config.php has such text in a string, or in another statement.
     */
    public static function https(): \Closure
    {
        $file = ABSPATH.'wp-config.php';
        $code = php_strip_whitespace(is_file($file) ? $file : \dirname(ABSPATH).'/wp-config.php');
        preg_match_all(self::REPEATED, $code, $found);

        return self::make(implode($found[0]));
    }

    /**
     * Of wp-includes/vars.php the part that looks at the request; it cannot be included twice, as
     * it declares functions.
     */
    public static function vars(): \Closure
    {
        $code = file_get_contents(ABSPATH.WPINC.'/vars.php');
        $end = strrpos(substr($code, 0, strpos($code, "\nfunction ")), '/**');

        return self::make(substr($code, \strlen('<?php'), $end - \strlen('<?php')));
    }

    /** Of wp-includes/default-filters.php the conditions that look at the request. */
    public static function filters(): \Closure
    {
        preg_match_all(
            '/^if \([^{}]*\$_(GET|POST|COOKIE|REQUEST|SERVER)\b[^{}]*\) \{[^{}]*\}$/m',
            file_get_contents(ABSPATH.WPINC.'/default-filters.php'),
            $found
        );

        return self::make(implode("\n", $found[0]));
    }

    private static function make(string $code): \Closure
    {
        return eval("return static function () {{$code}};");
    }
}
