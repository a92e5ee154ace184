<?php
// A shutdown function of an earlier request.
return [
    'leaks' => false,
    'why' => 'it runs at the end of its own request',
    'ends' => true,
    'set' => function () { register_shutdown_function(function () { echo 'LEFT'; }); },
    'see' => fn () => 'seen',
];
