<?php

namespace Runtime\FrankenPhpSymfony;

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;
use Symfony\Component\Runtime\RunnerInterface;

/**
 * Serves a kernel in FrankenPHP's documented worker loop, by the steps of the package's runner. In
 * addition, the header X-Handled has the number of the loop's turn.
 */
class Runner implements RunnerInterface
{
    public function __construct(private HttpKernelInterface $kernel, private int $loopMax)
    {
    }

    public function run(): int
    {
        ignore_user_abort(true);
        // The variables that Dotenv has added at the boot.
        $isKept = static fn (string $name): bool => !str_starts_with($name, 'HTTP_');
        $boot = array_filter($_SERVER, $isKept, ARRAY_FILTER_USE_KEY);
        $boot['APP_RUNTIME_MODE'] = 'web=1&worker=1';
        $loops = 0;
        // Kept until the next request has replaced them.
        $request = $response = null;
        $handle = function () use ($boot, &$loops, &$request, &$response): void {
            $_SERVER += $boot;
            $request = Request::createFromGlobals();
            $response = $this->kernel->handle($request);
            $response->headers->set('X-Handled', (string) ($loops + 1));
            $response->send();
        };
        do {
            $goesOn = \frankenphp_handle_request($handle);
            if ($this->kernel instanceof TerminableInterface && $request && $response) {
                $this->kernel->terminate($request, $response);
            }
            gc_collect_cycles();
        } while ($goesOn && (-1 === $this->loopMax || ++$loops < $this->loopMax));

        return 0;
    }
}
