<?php

/*
 * Stands in for runtime/frankenphp-symfony 0.2, which Debian does not package: the class that
 * APP_RUNTIME or extra.runtime.class names, and its option frankenphp_loop_max.
 */

namespace Runtime\FrankenPhpSymfony;

use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\Runtime\RunnerInterface;
use Symfony\Component\Runtime\SymfonyRuntime;

class Runtime extends SymfonyRuntime
{
    private const MAX = 'FRANKENPHP_LOOP_MAX';

    public function __construct(array $options = [])
    {
        $max = $options['frankenphp_loop_max'] ?? $_SERVER[self::MAX] ?? $_ENV[self::MAX] ?? 500;
        $options['frankenphp_loop_max'] = (int) $max;
        parent::__construct($options);
    }

    public function getRunner(?object $application): RunnerInterface
    {
        $isWorker = $_SERVER['FRANKENPHP_WORKER'] ?? false;

        return $isWorker && $application instanceof HttpKernelInterface
            ? new Runner($application, $this->options['frankenphp_loop_max'])
            : parent::getRunner($application);
    }
}
