<?php
// A static variable that the first call initializes with an expression.
const LEAK_STATIC_FIRST = ['booted'];
function leak_static_first_called(?string $value = null): string
{
    static $kept = LEAK_STATIC_FIRST[0] . PHP_MAJOR_VERSION;
    return $kept = $value ?? $kept;
}
return [
    'set' => function () { leak_static_first_called('left'); },
    'see' => fn () => leak_static_first_called(),
];
