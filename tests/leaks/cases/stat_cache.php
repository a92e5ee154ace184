<?php
// What stat() said last.
return [
    'set' => function () { $f = LEAK_STATE . '/stat'; touch($f); is_file($f); shell_exec('rm ' . escapeshellarg($f)); },
    'see' => fn () => var_export(is_file(LEAK_STATE . '/stat'), true),
];
