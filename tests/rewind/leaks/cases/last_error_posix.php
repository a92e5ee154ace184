<?php
// The last error of posix, pcntl and sockets.
return [
    'needs' => ['posix', 'sockets'],
    'set' => function () { posix_kill(0x3fffffff, 0); @socket_bind(socket_create(AF_INET, SOCK_STREAM, 0), '203.0.113.77', 9); },
    'see' => fn () => posix_get_last_error() . '/' . socket_last_error(),
];
