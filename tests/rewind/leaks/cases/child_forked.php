<?php
// A child that a request forked and did not wait for.
return [
    'needs' => ['pcntl', 'posix'],
    'set' => function () { if (pcntl_fork() === 0) { posix_kill(posix_getpid(), SIGKILL); } usleep(20000); },
    'see' => fn () => pcntl_waitpid(-1, $status, WNOHANG) === -1 ? 'no child' : 'a child',
];
