<?php

namespace App;

final class Job
{
    public function __construct(public string $do)
    {
    }
}
