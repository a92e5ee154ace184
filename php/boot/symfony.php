<?php

/*
 * Boots a Symfony application by its front controller, up to where that creates the request.
 */

require Surus\Boot\PACKAGES.'/autoload.php';

Surus\Boot\RequestCapture::then(static function (): void {
    Surus\Symfony\Server::serve(Surus\Symfony\Server::find($GLOBALS));
});

// A front controller that trusts REMOTE_ADDR then trusts this name: see Server's constructor, which
// removes it.
$_SERVER['REMOTE_ADDR'] = 'REMOTE_ADDR';

require $_SERVER['SCRIPT_FILENAME'];
