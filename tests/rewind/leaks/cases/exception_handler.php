<?php
// set_exception_handler.
return [
    'set' => function () { set_exception_handler(function () {}); },
    'see' => function () { $handler = set_exception_handler(null); restore_exception_handler(); return gettype($handler); },
];
