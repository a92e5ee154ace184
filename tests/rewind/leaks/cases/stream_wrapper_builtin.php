<?php
// Builtin stream wrappers that a request unregisters or replaces.
class LeakWrapperBuiltin { public $context; public function stream_open() { return false; } public function url_stat() { return false; } }
return [
    'leaks' => false,
    'why' => 'the end of a request brings those of the boot back',
    'set' => function () { stream_wrapper_unregister('http'); stream_wrapper_unregister('data'); stream_wrapper_register('data', 'LeakWrapperBuiltin'); },
    'see' => fn () => json_encode([in_array('http', stream_get_wrappers()), @file_get_contents('data:,booted')]),
];
