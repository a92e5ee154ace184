<?php
// A request that wants more than memory_limit.
return [
    'leaks' => false,
    'why' => 'a fatal error ends the request and not the next one',
    'ends' => true,
    'set' => function () { ini_set('memory_limit', '20M'); $x = []; while (true) { $x[] = str_repeat('x', 100_000); } },
    'see' => fn () => ob_get_level() . 'fine',
];
