<?php
// A request with infinite recursion.
function leak_deep($n) { return leak_deep($n + 1) + 1; }
return [
    'heavy' => true,
    'leaks' => false,
    'why' => 'a fatal error ends only its own request',
    'ends' => true,
    'set' => function () { ini_set('memory_limit', '20M'); leak_deep(0); },
    'see' => fn () => ob_get_level() . 'fine',
];
