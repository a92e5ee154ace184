<?php

namespace Surus\Symfony;

use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\Runtime\RunnerInterface;

/** Lets Symfony's Runtime component serve a kernel with Server. */
final class Runner implements RunnerInterface
{
    public function __construct(private readonly HttpKernelInterface $kernel)
    {
    }

    public function run(): int
    {
        Server::serve($this->kernel);

        return 0;
    }
}
