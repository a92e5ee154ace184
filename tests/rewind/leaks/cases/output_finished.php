<?php
// A request that finishes its response early and continues.
return [
    'leaks' => false,
    'why' => 'the next request has its own response',
    'set' => function () { echo 'set'; fastcgi_finish_request(); echo 'LEFT'; },
    'see' => fn () => 'seen' . connection_status(),
];
