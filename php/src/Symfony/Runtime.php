<?php

namespace Surus\Symfony;

use Surus\Engine;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\Runtime\RunnerInterface;
use Symfony\Component\Runtime\SymfonyRuntime;

/**
 * Symfony's own runtime, but for HTTP kernels on an engine that boots: APP_RUNTIME='Surus\Symfony\Runtime', and public/index.php
 * is booted once. Anywhere else (`classic`, php-fpm, bin/console) it is Symfony's.
 */
class Runtime extends SymfonyRuntime
{
    public function getRunner(?object $application): RunnerInterface
    {
        if (!Engine::boots()) {
            return parent::getRunner($application);
        }
        if ($application instanceof HttpKernelInterface) {
            return new Runner($application);
        }

        throw new \LogicException(sprintf(
            'An engine that boots needs a public/index.php whose closure returns the kernel, and it returned %s. What depends on a request, as a Response does, cannot be made ahead of it; such an application belongs to the engine `classic`.',
            get_debug_type($application),
        ));
    }
}
