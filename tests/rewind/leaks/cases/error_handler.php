<?php
// set_error_handler.
return [
    'set' => function () { set_error_handler(fn () => true); },
    'see' => function () { $handler = set_error_handler(null); restore_error_handler(); return gettype($handler); },
];
