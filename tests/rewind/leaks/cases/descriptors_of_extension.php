<?php
// Sockets of ext-sockets that a request leaves open.
return [
    'needs' => ['sockets'],
    'set' => function () { $GLOBALS['leak_socket'][] = socket_create_listen(0, 1); },
    'see' => fn () => leak_descriptors(),
];
