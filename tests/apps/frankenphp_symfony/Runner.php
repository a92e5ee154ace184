<?php

namespace Runtime\FrankenPhpSymfony;

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;
use Symfony\Component\Runtime\RunnerInterface;

/**
 * Serves a kernel in FrankenPHP's documented worker loop. The header X-Handled is the number of the
 * loop's turn.
 */
class Runner implements RunnerInterface
{
    public function __construct(private HttpKernelInterface $kernel, private int $max)
    {
    }

    public function run(): int
    {
        // The variables that Dotenv has added at the boot.
        $boot = [];
        foreach ($_SERVER as $name => $value) {
            if (!str_starts_with($name, 'HTTP_')) {
                $boot[$name] = $value;
            }
        }
        $turn = 1;
        $exchange = [];
        $handle = function () use ($boot, &$turn, &$exchange): void {
            $_SERVER += $boot;
            $request = Request::createFromGlobals();
            $response = $this->kernel->handle($request);
            $response->headers->set('X-Handled', (string) $turn);
            $response->send();
            $exchange = [$request, $response];
        };
        do {
            $goesOn = \frankenphp_handle_request($handle);
            if ($exchange && $this->kernel instanceof TerminableInterface) {
                $this->kernel->terminate(...$exchange);
            }
            $exchange = [];
        } while ($goesOn && $turn++ !== $this->max);

        return 0;
    }
}
