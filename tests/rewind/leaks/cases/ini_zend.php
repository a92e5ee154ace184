<?php
// Engine settings: assertions, exceptions without arguments.
return [
    'set' => function () { ini_set('zend.exception_ignore_args', ini_get('zend.exception_ignore_args') ? '0' : '1'); ini_set('zend.exception_string_param_max_len', '3'); ini_set('zend.enable_gc', '0'); },
    'see' => fn () => ini_get('zend.exception_ignore_args') . ini_get('zend.exception_string_param_max_len') . var_export(gc_enabled(), true),
];
