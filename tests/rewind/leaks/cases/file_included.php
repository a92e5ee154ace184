<?php
// An included file: the list and its declarations.
return [
    'set' => function () { include_once __DIR__ . '/../include/unit.php'; },
    'see' => fn () => count(preg_grep('~include/unit\.php$~', get_included_files())) . var_export(class_exists('LeakUnit', false), true),
];
