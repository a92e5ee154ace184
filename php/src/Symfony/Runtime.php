<?php

namespace Surus\Symfony;

use Surus\Engine;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\Runtime\RunnerInterface;
use Symfony\Component\Runtime\SymfonyRuntime;

/**
 * Symfony's own runtime, except for HTTP kernels on an engine that boots: with
 * APP_RUNTIME='Surus\Symfony\Runtime', public/index.php boots once. Elsewhere (`classic`, php-fpm,
 * bin/console) it is Symfony's.
 */
class Runtime extends SymfonyRuntime
{
    public function __construct(array $options = [])
    {
        if (Engine::boots()) {
            // A closure that trusts REMOTE_ADDR then trusts this name: see Server's constructor,
            // which removes it.
            $_SERVER['REMOTE_ADDR'] = 'REMOTE_ADDR';
        }
        parent::__construct($options);
    }

    public function getRunner(?object $application): RunnerInterface
    {
        if (!Engine::boots()) {
            return parent::getRunner($application);
        }
        if ($application instanceof HttpKernelInterface) {
            return new Runner($application);
        }

        throw new \LogicException(sprintf(
            'an engine that boots needs a public/index.php whose closure returns the kernel, but it returned %s; a result that depends on the request, such as a Response, needs the engine `classic`',
            get_debug_type($application),
        ));
    }

    protected function getArgument(\ReflectionParameter $parameter, ?string $type): mixed
    {
        $isRequest = Request::class === $type
            || ('array' === $type && 'request' === $parameter->name);
        if ($isRequest && Engine::boots()) {
            throw new \LogicException(
                "the closure of public/index.php has the argument `$type \$$parameter->name`, and "
                    .'a boot would call it once for all requests; it needs the engine `classic`'
            );
        }

        return parent::getArgument($parameter, $type);
    }
}
