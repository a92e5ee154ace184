<?php
// Header lines of the previous request.
return [
    'leaks' => false,
    'why' => 'every request has its own header lines',
    'send' => ['headers' => ['x-left' => 'left']],
    'set' => function () { if ((getallheaders()['X-Left'] ?? '') !== 'left') { throw new Exception('no header came'); } },
    'see' => fn () => json_encode([getallheaders()['X-Left'] ?? null, $_SERVER['HTTP_X_LEFT'] ?? null, getenv('HTTP_X_LEFT')]),
];
