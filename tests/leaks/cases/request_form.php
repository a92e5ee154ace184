<?php
// A form that the client before sent.
return [
    'leaks' => false,
    'why' => 'every request has superglobals of its own',
    'send' => ['method' => 'POST', 'headers' => ['content-type' => 'application/x-www-form-urlencoded'], 'body' => 'left=left'],
    'set' => function () { if ($_POST['left'] !== 'left') { throw new Exception('no form came'); } },
    'see' => fn () => json_encode([$_POST, file_get_contents('php://input'), $_SERVER['CONTENT_TYPE'] ?? null]),
];
