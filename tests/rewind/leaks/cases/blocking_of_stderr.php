<?php
// The blocking mode of the worker's own stderr.
return [
    'set' => function () { stream_set_blocking(fopen('php://stderr', 'w'), false); },
    'see' => fn () => file('/proc/self/fdinfo/2')[1],
];
