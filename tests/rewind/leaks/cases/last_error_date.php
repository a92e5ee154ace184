<?php
// The errors of the last parsed date.
return [
    'set' => function () { date_create('left over'); },
    'see' => fn () => json_encode((date_get_last_errors() ?: [])['error_count'] ?? 0),
];
