<?php

// What APP_RUNTIME='Surus\Symfony\Runtime' makes of public/index.php, written out: for applications
// without the Runtime component.

use App\Kernel;
use Surus\Symfony\Server;

require __DIR__.'/vendor/autoload.php';

Server::serve(new Kernel(getenv('APP_ENV') ?: 'prod', (bool) getenv('APP_DEBUG')));
