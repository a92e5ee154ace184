<?php

namespace App;

use Illuminate\Foundation\Exceptions\Handler;

final class ExceptionHandler extends Handler
{
}
