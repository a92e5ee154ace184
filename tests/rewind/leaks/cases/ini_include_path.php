<?php
// The include path.
return [
    'set' => function () { set_include_path('/left'); },
    'see' => fn () => get_include_path(),
];
