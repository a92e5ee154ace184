<?php

/*
 * Boots a Symfony application whose front controller uses the Runtime component: the runtime is
 * Surus's, and everything else is the application's.
 */

$_SERVER['APP_RUNTIME'] = Surus\Symfony\Runtime::class;

require $_SERVER['SCRIPT_FILENAME'];
