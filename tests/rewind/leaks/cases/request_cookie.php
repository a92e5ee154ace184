<?php
// A cookie of the previous client.
return [
    'leaks' => false,
    'why' => 'every request has its own superglobals',
    'send' => ['headers' => ['cookie' => 'left=left']],
    'set' => function () { if ($_COOKIE['left'] !== 'left') { throw new Exception('no cookie came'); } },
    'see' => fn () => json_encode([$_COOKIE, $_SERVER['HTTP_COOKIE'] ?? null]),
];
