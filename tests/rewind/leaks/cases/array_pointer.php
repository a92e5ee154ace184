<?php
// The position inside an array from the boot.
return [
    'boot' => fn () => (object) ['list' => ['a', 'b', 'c']],
    'set' => function ($boot) { next($boot->list); },
    'see' => fn ($boot) => current($boot->list),
];
