<?php
// A file with a syntax error.
return [
    'leaks' => false,
    'why' => 'nothing of it remains',
    'ends' => true,
    'set' => function () { include __DIR__ . '/../include/broken.php.txt'; },
    'see' => fn () => ob_get_level() . http_response_code(),
];
