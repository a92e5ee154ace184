<?php
// json_last_error.
return [
    'set' => function () { json_decode('{'); },
    'see' => fn () => json_last_error_msg(),
];
