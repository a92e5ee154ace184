<?php
// The position of a file that the boot opened.
return [
    'boot' => fn () => fopen(__FILE__, 'r'),
    'set' => function ($boot) { fseek($boot, 5); fread($boot, 1); },
    'see' => fn ($boot) => (string) ftell($boot) . json_encode(stream_get_meta_data($boot)['unread_bytes']),
];
