<?php
// A request that exceeds memory_limit.
return [
    'leaks' => false,
    'why' => 'a fatal error ends only its own request',
    'ends' => true,
    'set' => function () { ini_set('memory_limit', '20M'); $x = []; while (true) { $x[] = str_repeat('x', 100_000); } },
    'see' => fn () => ob_get_level() . 'fine',
];
