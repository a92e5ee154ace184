<?php
// preg_last_error.
return [
    'leaks' => false,
    'why' => 'the end of a request forgets it',
    'set' => function () { preg_match('/./u', "\xff"); },
    'see' => fn () => preg_last_error_msg(),
];
