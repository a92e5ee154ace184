<?php
// A body of which a stream is left at a position, in a variable of boot.
return [
    'boot' => fn () => new stdClass,
    'send' => ['method' => 'POST', 'headers' => ['content-type' => 'application/json'], 'body' => '{"left":"left"}'],
    'set' => function ($boot) { $boot->input = fopen('php://input', 'r'); fread($boot->input, 3); },
    'see' => fn ($boot) => json_encode(isset($boot->input)),
];
