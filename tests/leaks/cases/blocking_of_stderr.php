<?php
// Whether the worker's own stderr blocks.
return [
    'set' => function () { stream_set_blocking(fopen('php://stderr', 'w'), false); },
    'see' => fn () => file('/proc/self/fdinfo/2')[1],
];
