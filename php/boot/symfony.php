<?php

/*
 * Boots a Symfony application by its front controller, up to where that creates the request.
 */

require Surus\Boot\PACKAGES.'/autoload.php';

Surus\Boot\RequestCapture::then(static function (): void {
    Surus\Symfony\Server::serve(Surus\Symfony\Server::find($GLOBALS));
});

require $_SERVER['SCRIPT_FILENAME'];
