<?php
// header_register_callback.
return [
    'leaks' => false,
    'why' => 'it is of the answer',
    'set' => function () { header_register_callback(function () { header('X-Left: left'); }); },
    'see' => fn () => 'seen',
];
