<?php

namespace App;

use Symfony\Component\HttpKernel\Bundle\Bundle as HttpKernelBundle;

/** Stores its container in a static property, as bundles do. */
final class Bundle extends HttpKernelBundle
{
    public static ?object $current = null;

    public function boot(): void
    {
        self::$current = $this->container;
    }
}
