<?php
// A request that answers early and goes on.
return [
    'leaks' => false,
    'why' => 'the next request has an answer of its own',
    'set' => function () { echo 'set'; fastcgi_finish_request(); echo 'LEFT'; },
    'see' => fn () => 'seen' . connection_status(),
];
