<?php
// A static variable of a function.
function leak_static_of_function(?string $value = null): string
{
    static $kept = 'booted';
    return $kept = $value ?? $kept;
}
return [
    'set' => function () { leak_static_of_function('left'); },
    'see' => fn () => leak_static_of_function(),
];
