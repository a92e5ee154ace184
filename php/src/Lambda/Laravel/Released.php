<?php

namespace Surus\Lambda\Laravel;

/** A job must be delivered again. */
final class Released extends \RuntimeException
{
    /** Without a trace, since this is not a program error. */
    public function __toString(): string
    {
        return $this->getMessage();
    }
}
