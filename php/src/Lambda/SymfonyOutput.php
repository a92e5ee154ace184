<?php

namespace Surus\Lambda;

use Symfony\Component\Console\Output\Output;

/** Where commands of Symfony and Laravel write to. */
final class SymfonyOutput extends Output
{
    public function __construct(private readonly CommandOutput $output)
    {
        parent::__construct();
    }

    // Before its version 6 the parameters have no types.
    protected function doWrite($message, $newline): void
    {
        $this->output->add($newline ? $message.\PHP_EOL : $message);
    }
}
