<?php
// $_SERVER.
return [
    'leaks' => false,
    'why' => 'every request has its own superglobals',
    'set' => function () { $_SERVER['LEAK'] = 'left'; unset($_SERVER['REQUEST_METHOD']); },
    'see' => fn () => ($_SERVER['LEAK'] ?? 'none') . ($_SERVER['REQUEST_METHOD'] ?? 'gone'),
];
