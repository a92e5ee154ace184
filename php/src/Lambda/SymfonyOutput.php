<?php

namespace Surus\Lambda;

use Symfony\Component\Console\Output\Output;

/** Output for Symfony's and Laravel's commands. */
final class SymfonyOutput extends Output
{
    public function __construct(private readonly CommandOutput $output)
    {
        parent::__construct();
    }

    // Before Symfony 6 the parameters have no types.
    protected function doWrite($message, $newline): void
    {
        $this->output->add($newline ? $message.\PHP_EOL : $message);
    }
}
