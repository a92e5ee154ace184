<?php
// preg_last_error.
return [
    'set' => function () { preg_match('/./u', "\xff"); },
    'see' => fn () => preg_last_error_msg(),
];
