<?php

namespace App;

use Symfony\Component\HttpKernel\Bundle\Bundle as HttpKernelBundle;

/** Tells a static property of its container, as bundles do. */
final class Bundle extends HttpKernelBundle
{
    public static ?object $current = null;

    public function boot(): void
    {
        self::$current = $this->container;
    }
}
