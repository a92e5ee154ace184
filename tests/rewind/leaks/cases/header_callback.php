<?php
// header_register_callback.
return [
    'leaks' => false,
    'why' => 'it belongs to the response',
    'set' => function () { header_register_callback(function () { header('X-Left: left'); }); },
    'see' => fn () => 'seen',
];
