<?php
// A stream wrapper that a request registers.
class LeakWrapper { public $context; }
return [
    'set' => function () { stream_wrapper_register('left', 'LeakWrapper'); },
    'see' => fn () => var_export(in_array('left', stream_get_wrappers()), true),
];
