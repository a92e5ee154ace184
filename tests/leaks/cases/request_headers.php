<?php
// Header lines of the request before.
return [
    'leaks' => false,
    'why' => 'every request has header lines of its own',
    'send' => ['headers' => ['x-left' => 'left']],
    'set' => function () { if ((getallheaders()['X-Left'] ?? '') !== 'left') { throw new Exception('no header came'); } },
    'see' => fn () => json_encode([getallheaders()['X-Left'] ?? null, $_SERVER['HTTP_X_LEFT'] ?? null, getenv('HTTP_X_LEFT')]),
];
