<?php
// A cookie that the client before sent.
return [
    'leaks' => false,
    'why' => 'every request has superglobals of its own',
    'send' => ['headers' => ['cookie' => 'left=left']],
    'set' => function () { if ($_COOKIE['left'] !== 'left') { throw new Exception('no cookie came'); } },
    'see' => fn () => json_encode([$_COOKIE, $_SERVER['HTTP_COOKIE'] ?? null]),
];
