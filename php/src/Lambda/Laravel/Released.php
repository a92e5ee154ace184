<?php

namespace Surus\Lambda\Laravel;

/** A job must come again. */
final class Released extends \RuntimeException
{
    /** Without a trace, since this is not a program error. */
    public function __toString(): string
    {
        return $this->getMessage();
    }
}
