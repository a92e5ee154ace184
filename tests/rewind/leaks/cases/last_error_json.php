<?php
// json_last_error.
return [
    'leaks' => false,
    'why' => 'the end of a request forgets it',
    'set' => function () { json_decode('{'); },
    'see' => fn () => json_last_error_msg(),
];
