<?php

namespace Composer;

/** Tells Symfony which packages are for development only; none of Debian's is. */
final class InstalledVersions
{
    public static function isInstalled(): bool
    {
        return false;
    }
}
