<?php
// Open output buffers.
return [
    'leaks' => false,
    'why' => 'the end of a request ends them',
    'set' => function () { ob_start(); ob_start(); echo 'text'; },
    'see' => fn () => ob_get_level() . json_encode(ob_list_handlers()),
];
