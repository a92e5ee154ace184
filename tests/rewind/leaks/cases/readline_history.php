<?php
// readline's history.
return [
    'needs' => ['readline'],
    'set' => function () { readline_add_history('left'); },
    'see' => fn () => function_exists('readline_list_history') ? json_encode(readline_list_history()) : count((array) readline_info()) . '',
];
