<?php
// A JSON body that nobody read.
return [
    'leaks' => false,
    'why' => 'every request has a body of its own',
    'send' => ['method' => 'POST', 'headers' => ['content-type' => 'application/json'], 'body' => '{"left":"left"}'],
    'set' => function () {},
    'see' => fn () => strlen(file_get_contents('php://input')) . '',
];
