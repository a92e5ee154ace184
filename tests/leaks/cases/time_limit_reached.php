<?php
// A request that PHP ends for its time; the next has all of its own.
return [
    'leaks' => false,
    'why' => 'a limit begins anew with every request',
    'ends' => true,
    'slow' => true,
    'set' => function () { set_time_limit(1); while (true) { md5('x'); } },
    'see' => function () { $end = microtime(true) + 0.2; while (microtime(true) < $end) { md5('x'); } return 'in time'; },
];
