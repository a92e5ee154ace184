<?php

namespace Surus\Symfony;

use Surus\Engine;
use Surus\Lambda\Hook;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;
use Symfony\Component\Runtime\RunnerInterface;

/** Boots the kernel and has it handle every request that comes. */
final class Runner implements RunnerInterface
{
    public function __construct(private readonly HttpKernelInterface $kernel)
    {
    }

    public function run(): int
    {
        if ($this->kernel instanceof KernelInterface) {
            $this->kernel->boot();
        }
        surus_serve($this->handle(...));

        return 0;
    }

    private function handle(): void
    {
        Hook::begin();
        $request = Request::createFromGlobals();
        $response = $this->kernel->handle($request);
        // Symfony ends the client's wait here, so that what follows delays nobody.
        $response->send();
        if ($this->kernel instanceof TerminableInterface) {
            $this->kernel->terminate($request, $response);
        }
        if (Engine::forgets()) {
            $this->disconnect();
        }
    }

    /** No process but this one knows Doctrine's connections, and after a warm-up others would share them. */
    private function disconnect(): void
    {
        $container = $this->kernel instanceof KernelInterface ? $this->kernel->getContainer() : null;
        if ($container?->initialized('doctrine')) {
            foreach ($container->get('doctrine')->getConnections() as $connection) {
                $connection->close();
            }
        }
    }
}
