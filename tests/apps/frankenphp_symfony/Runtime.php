<?php

/*
 * Stands in for runtime/frankenphp-symfony, which Debian does not package: the class that
 * APP_RUNTIME or extra.runtime.class names, and its option frankenphp_loop_max.
 */

namespace Runtime\FrankenPhpSymfony;

use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\Runtime\RunnerInterface;
use Symfony\Component\Runtime\SymfonyRuntime;

class Runtime extends SymfonyRuntime
{
    private int $max;

    public function __construct(array $options = [])
    {
        $max = $options['frankenphp_loop_max'] ?? $_SERVER['FRANKENPHP_LOOP_MAX'] ?? 500;
        $this->max = (int) $max;
        parent::__construct($options);
    }

    public function getRunner(?object $application): RunnerInterface
    {
        $isWorker = (bool) ($_SERVER['FRANKENPHP_WORKER'] ?? false);

        return $isWorker && $application instanceof HttpKernelInterface
            ? new Runner($application, $this->max)
            : parent::getRunner($application);
    }
}
