<?php

// What needs no request is loaded here, once; functions can be declared only once, too.
require_once __DIR__.'/functions.php';

surus_serve(static function (): void {
    require __DIR__.'/index.php';
});
