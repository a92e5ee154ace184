<?php
// Where a directory that boot opened stands.
return [
    'boot' => fn () => opendir(__DIR__),
    'set' => function ($boot) { readdir($boot); readdir($boot); readdir($boot); },
    'see' => function ($boot) { $n = 0; while (readdir($boot) !== false) { $n++; } return "$n entries"; },
];
