<?php
// A request that exceeds its time limit; the next one gets the full limit.
return [
    'leaks' => false,
    'why' => 'every request gets the full limit',
    'ends' => true,
    'slow' => true,
    'set' => function () { set_time_limit(1); while (true) { md5('x'); } },
    'see' => function () { $end = microtime(true) + 0.2; while (microtime(true) < $end) { md5('x'); } return 'in time'; },
];
