<?php
// The time of the request, which differs from the boot's and the previous request's.
return [
    'leaks' => false,
    'why' => 'every request has its own time',
    'set' => function () { usleep(200); },
    'see' => fn () => json_encode([abs(microtime(true) - $_SERVER['REQUEST_TIME_FLOAT']) < 0.5, abs(time() - $_SERVER['REQUEST_TIME']) < 2]),
    'is' => '[true,true]',
];
