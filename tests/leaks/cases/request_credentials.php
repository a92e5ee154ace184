<?php
// The user name and password of the client before.
return [
    'leaks' => false,
    'why' => 'every request has superglobals of its own',
    'send' => ['headers' => ['authorization' => 'Basic dTpw']],
    'set' => function () { if (($_SERVER['PHP_AUTH_USER'] ?? '') !== 'u') { throw new Exception('no credentials came'); } },
    'see' => fn () => json_encode([$_SERVER['PHP_AUTH_USER'] ?? null, $_SERVER['PHP_AUTH_PW'] ?? null, $_SERVER['HTTP_AUTHORIZATION'] ?? null]),
];
