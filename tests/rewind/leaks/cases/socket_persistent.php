<?php
// pfsockopen: a persistent connection.
return [
    'set' => function () { pfsockopen('udp://127.0.0.1', 9); },
    'see' => fn () => leak_descriptors(),
];
