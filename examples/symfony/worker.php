<?php

// The boot script for applications without Symfony's Runtime component. With it,
// APP_RUNTIME='Surus\Symfony\Runtime' makes the same of public/index.php.

use App\Kernel;
use Surus\Symfony\Server;

require __DIR__.'/vendor/autoload.php';

Server::serve(new Kernel(getenv('APP_ENV') ?: 'prod', (bool) getenv('APP_DEBUG')));
