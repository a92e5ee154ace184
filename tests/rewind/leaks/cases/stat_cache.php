<?php
// The stat cache.
return [
    'leaks' => false,
    'why' => 'the end of a request clears it',
    'set' => function () { $f = LEAK_STATE . '/stat'; touch($f); is_file($f); shell_exec('rm ' . escapeshellarg($f)); },
    'see' => fn () => var_export(is_file(LEAK_STATE . '/stat'), true),
];
