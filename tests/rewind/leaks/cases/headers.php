<?php
// Header lines, cookies and status of the previous response.
return [
    'leaks' => false,
    'why' => 'they belong to the response',
    'set' => function () { header('X-Left: left'); setcookie('left', 'left'); http_response_code(418); header('Content-Type: text/left'); header_remove('X-Powered-By'); },
    'see' => fn () => json_encode([http_response_code(), headers_list(), headers_sent()]),
];
