<?php
// A partly read stream of the body in a variable from the boot.
return [
    'boot' => fn () => new stdClass,
    'send' => ['method' => 'POST', 'headers' => ['content-type' => 'application/json'], 'body' => '{"left":"left"}'],
    'set' => function ($boot) { $boot->input = fopen('php://input', 'r'); fread($boot->input, 3); },
    'see' => fn ($boot) => json_encode(isset($boot->input)),
];
