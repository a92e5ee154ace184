<?php
// A function that runs with every tick.
return [
    'leaks' => false,
    'why' => 'the end of a request removes it',
    'set' => function () { register_tick_function(function () { $GLOBALS['leak_ticks'] = ($GLOBALS['leak_ticks'] ?? 0) + 1; }); },
    'see' => fn () => (include __DIR__ . '/../include/ticks.php') > 0 ? 'ticks' : 'silence',
];
