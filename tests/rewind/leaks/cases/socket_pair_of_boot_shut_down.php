<?php
// A direction of a socket pair from the boot that a request shuts down.
return [
    'needs' => ['sockets'],
    'boot' => function () { socket_create_pair(AF_UNIX, SOCK_DGRAM, 0, $pair); socket_set_nonblock($pair[1]); return $pair; },
    'set' => function ($boot) { socket_shutdown($boot[0], 1); },
    'see' => fn ($boot) => json_encode([@socket_write($boot[0], 'own'), @socket_read($boot[1], 10)]),
];
