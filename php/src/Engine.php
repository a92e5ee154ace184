<?php

namespace Surus;

/** What runs this process. */
final class Engine
{
    /** The engine's name; null when it is not Surus that runs this. */
    public static function name(): ?string
    {
        return \function_exists('surus_serve') ? getenv('SURUS_ENGINE') ?: null : null;
    }

    /** Does the script boot once, ahead of the requests? If so it calls surus_serve(), which fails elsewhere. */
    public static function boots(): bool
    {
        return !\in_array(self::name(), [null, 'classic'], true);
    }

    /** Does this process keep nothing of a request for the next, its connections included? */
    public static function forgets(): bool
    {
        return self::boots() && 'worker' !== self::name();
    }
}
