<?php

require_once __DIR__.'/../vendor/autoload.php';

(require __DIR__.'/../app.php')->run();
