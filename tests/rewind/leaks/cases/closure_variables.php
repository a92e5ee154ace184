<?php
// A variable that a closure from the boot captures by reference.
return [
    'boot' => function () { $n = 'booted'; return function ($value = null) use (&$n) { return $n = $value ?? $n; }; },
    'set' => function ($boot) { $boot('left'); },
    'see' => fn ($boot) => $boot(),
];
