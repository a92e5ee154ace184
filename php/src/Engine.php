<?php

namespace Surus;

/** The engine that runs this process. */
final class Engine
{
    /** The engine's name; null outside Surus. */
    public static function name(): ?string
    {
        return \function_exists('surus_serve') ? getenv('SURUS_ENGINE') ?: null : null;
    }

    /**
     * Whether the script boots once before the requests. It then calls surus_serve(), which fails
     * elsewhere.
     */
    public static function boots(): bool
    {
        return !\in_array(self::name(), [null, 'classic'], true);
    }

    /** Whether the processes that serve are copies of the one that boots. */
    public static function copiesBoot(): bool
    {
        return \in_array(self::name(), ['rewind', 'fork'], true);
    }

    /** Whether this process keeps nothing of a request, including connections. */
    public static function forgets(): bool
    {
        return self::boots() && 'worker' !== self::name();
    }
}
