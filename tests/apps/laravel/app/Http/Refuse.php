<?php

namespace App\Http;

final class Refuse
{
    public function handle(): never
    {
        abort(418);
    }
}
