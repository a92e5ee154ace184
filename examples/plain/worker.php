<?php

// The boot script: loads once what needs no request. Functions can be declared only once, too.
require_once __DIR__.'/functions.php';

surus_serve(static function (): void {
    require __DIR__.'/index.php';
});
