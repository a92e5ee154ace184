<?php
// A stream context from the boot.
return [
    'boot' => fn () => stream_context_create(['http' => ['user_agent' => 'booted']]),
    'set' => function ($boot) { stream_context_set_option($boot, 'http', 'user_agent', 'left'); },
    'see' => fn ($boot) => json_encode(stream_context_get_options($boot)),
];
