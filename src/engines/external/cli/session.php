<?php

namespace Surus\Cli {

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
}
