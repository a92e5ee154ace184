<?php
// arg_separator and other settings for variables; unserialize's callback and depth.
return [
    'set' => function () { ini_set('arg_separator.output', '|'); ini_set('unserialize_callback_func', 'left'); ini_set('unserialize_max_depth', '3'); },
    'see' => fn () => http_build_query(['a' => 1, 'b' => 2]) . ini_get('unserialize_callback_func') . ini_get('unserialize_max_depth'),
];
