<?php
// A session with a handler that throws while it writes at the end.
class LeakSessionFails extends SessionHandler { public function open($path, $name): bool { return true; } public function read($id): string { return ''; } public function write($id, $data): bool { throw new Exception('left'); } public function close(): bool { return true; } public function validateId($id): bool { return true; } }
return [
    'needs' => ['session'],
    'leaks' => false,
    'why' => 'the end of a request closes it',
    'ends' => true,
    'set' => function () { session_set_save_handler(new LeakSessionFails); session_id('left'); session_start(['use_cookies' => 0, 'lazy_write' => 0]); $_SESSION['left'] = 1; },
    'see' => fn () => session_status() . '',
];
