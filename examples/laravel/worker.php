<?php

require __DIR__.'/vendor/autoload.php';

Surus\Laravel\Runner::serve(require __DIR__.'/bootstrap/app.php');
