<?php

namespace Composer;

/** Symfony asks Composer which packages are for development alone; of Debian's none is. */
final class InstalledVersions
{
    public static function isInstalled(): bool
    {
        return false;
    }
}
