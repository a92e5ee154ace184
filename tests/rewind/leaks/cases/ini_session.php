<?php
// Session settings.
return [
    'needs' => ['session'],
    'set' => function () { foreach (['session.gc_maxlifetime' => '7', 'session.cookie_samesite' => 'Strict', 'session.use_strict_mode' => '1', 'session.serialize_handler' => 'php_serialize', 'session.sid_length' => '64', 'session.lazy_write' => '0'] as $n => $v) { ini_set($n, $v); } },
    'see' => fn () => json_encode(array_map('ini_get', ['session.gc_maxlifetime', 'session.cookie_samesite', 'session.use_strict_mode', 'session.serialize_handler', 'session.sid_length', 'session.lazy_write'])),
];
