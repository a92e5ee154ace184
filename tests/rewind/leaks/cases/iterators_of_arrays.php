<?php
// Many loops by reference that were interrupted.
return [
    'leaks' => false,
    'why' => 'no script can see it',
    'set' => function () { for ($i = 0; $i < 50; $i++) { $a = [1, 2, 3]; $g = (function () use (&$a) { foreach ($a as &$x) { yield $x; } })(); $g->current(); $GLOBALS['leak_loops'][] = $g; } },
    'see' => function () { $a = [1, 2]; $n = 0; foreach ($a as &$x) { if (++$n < 4) { $a[] = $x; } } return (string) $n; },
];
