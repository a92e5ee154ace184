<?php
// error_get_last.
return [
    'leaks' => false,
    'why' => 'the end of a request forgets it',
    'set' => function () { @trigger_error('left'); },
    'see' => fn () => json_encode(error_get_last()['message'] ?? null),
];
