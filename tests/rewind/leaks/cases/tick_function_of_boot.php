<?php
// A function of the boot that runs with every tick, and one that a request adds.
return [
    'leaks' => false,
    'why' => 'the end of a request removes its own',
    'boot' => function () { register_tick_function(function () { $GLOBALS['leak_boot_ticks'] = ($GLOBALS['leak_boot_ticks'] ?? 0) + 1; }); },
    'set' => function () { register_tick_function(function () { $GLOBALS['leak_boot_ticks'] += 1000; }); },
    'see' => function () {
        $GLOBALS['leak_boot_ticks'] = 0;
        include __DIR__ . '/../include/ticks.php';
        return $GLOBALS['leak_boot_ticks'] . ' ticks';
    },
];
