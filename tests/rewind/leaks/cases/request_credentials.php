<?php
// The user name and password of the previous client.
return [
    'leaks' => false,
    'why' => 'every request has its own superglobals',
    'send' => ['headers' => ['authorization' => 'Basic dTpw']],
    'set' => function () { if (($_SERVER['PHP_AUTH_USER'] ?? '') !== 'u') { throw new Exception('no credentials came'); } },
    'see' => fn () => json_encode([$_SERVER['PHP_AUTH_USER'] ?? null, $_SERVER['PHP_AUTH_PW'] ?? null, $_SERVER['HTTP_AUTHORIZATION'] ?? null]),
];
