<?php
// A function that a request declares.
return [
    'set' => function () { eval('function leak_function_declared() { return "left"; }'); },
    'see' => fn () => function_exists('leak_function_declared') ? leak_function_declared() : 'none',
];
