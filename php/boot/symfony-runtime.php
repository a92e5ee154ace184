<?php

/*
 * Boots a Symfony application whose front controller uses the Runtime component: the runtime is
 * Surus's, and everything else is the application's.
 */

$_SERVER['APP_RUNTIME'] = Surus\Symfony\Runtime::class;

try {
    require $_SERVER['SCRIPT_FILENAME'];
} catch (Throwable $e) {
    // The component's handler would print a page, without the place.
    Surus\Boot\Failure::report($e);
}
