<?php
// The errors of the last parsed date.
return [
    'leaks' => false,
    'why' => 'the end of a request forgets it',
    'set' => function () { date_create('left over'); },
    'see' => fn () => json_encode((date_get_last_errors() ?: [])['error_count'] ?? 0),
];
