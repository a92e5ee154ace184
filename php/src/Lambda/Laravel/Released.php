<?php

namespace Surus\Lambda\Laravel;

/** A job is to come again. */
final class Released extends \RuntimeException
{
    /** No error of the program, so that where it comes from is of no interest. */
    public function __toString(): string
    {
        return $this->getMessage();
    }
}
