<?php
// A stream wrapper of the boot that a request unregisters.
class LeakWrapperOfBoot { public $context; public function stream_open() { return true; } public function stream_read() { return ''; } public function stream_eof() { return true; } public function stream_stat() { return []; } }
return [
    'leaks' => false,
    'why' => 'the end of a request brings those of the boot back',
    'boot' => fn () => stream_wrapper_register('leakboot', 'LeakWrapperOfBoot'),
    'set' => function () { stream_wrapper_unregister('leakboot'); },
    'see' => fn () => json_encode(@file_get_contents('leakboot://x')),
];
