<?php
// A constant that a request defines.
return [
    'set' => function () { define('LEAK_CONSTANT', 'left'); },
    'see' => fn () => defined('LEAK_CONSTANT') ? LEAK_CONSTANT : 'none',
];
