<?php

/*
 * Boots a Slim application by its front controller, up to where that creates the request.
 */

require Surus\Boot\PACKAGES.'/autoload.php';

Slim\Factory\ServerRequestCreatorFactory::setServerRequestCreator(new Surus\Boot\SlimRequests());

require $_SERVER['SCRIPT_FILENAME'];
