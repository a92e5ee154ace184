<?php
// $_ENV.
return [
    'set' => function () { $_ENV['LEAK_ENV_ARRAY'] = 'left'; },
    'see' => fn () => $_ENV['LEAK_ENV_ARRAY'] ?? 'none',
    'leaks' => false,
    'why' => 'every request has its own superglobals',
];
