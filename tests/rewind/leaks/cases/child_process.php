<?php
// A program that a request has started and left running.
return [
    'needs' => ['pcntl'],
    'set' => function () { $GLOBALS['leak_child'] = proc_open(['sleep', '0.05'], [], $pipes); },
    'see' => fn () => pcntl_waitpid(-1, $status, WNOHANG) === -1 ? 'no child' : 'a child',
];
