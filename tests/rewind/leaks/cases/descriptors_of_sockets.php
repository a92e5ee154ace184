<?php
// Sockets that a request leaves open: a listener, a connection to it, a pair.
return [
    'set' => function () {
        $GLOBALS['leak_sockets'][] = $server = stream_socket_server('tcp://127.0.0.1:0');
        $GLOBALS['leak_sockets'][] = stream_socket_client('tcp://' . stream_socket_get_name($server, false));
        $GLOBALS['leak_sockets'][] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    },
    'see' => fn () => leak_descriptors(),
];
