<?php
// A form of the previous client.
return [
    'leaks' => false,
    'why' => 'every request has its own superglobals',
    'send' => ['method' => 'POST', 'headers' => ['content-type' => 'application/x-www-form-urlencoded'], 'body' => 'left=left'],
    'set' => function () { if ($_POST['left'] !== 'left') { throw new Exception('no form came'); } },
    'see' => fn () => json_encode([$_POST, file_get_contents('php://input'), $_SERVER['CONTENT_TYPE'] ?? null]),
];
