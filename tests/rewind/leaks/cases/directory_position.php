<?php
// The position of a directory that the boot opened.
return [
    'boot' => fn () => opendir(__DIR__),
    'set' => function ($boot) { readdir($boot); readdir($boot); readdir($boot); },
    'see' => function ($boot) { $n = 0; while (readdir($boot) !== false) { $n++; } return "$n entries"; },
];
