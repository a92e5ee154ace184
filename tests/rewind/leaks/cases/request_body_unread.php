<?php
// An unread JSON body.
return [
    'leaks' => false,
    'why' => 'every request has its own body',
    'send' => ['method' => 'POST', 'headers' => ['content-type' => 'application/json'], 'body' => '{"left":"left"}'],
    'set' => function () {},
    'see' => fn () => strlen(file_get_contents('php://input')) . '',
];
