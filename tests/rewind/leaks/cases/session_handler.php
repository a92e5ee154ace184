<?php
// session_set_save_handler.
class LeakSessionHandler extends SessionHandler { public function open($path, $name): bool { return true; } public function read($id): string { return 'left|s:4:"left";'; } public function write($id, $data): bool { return true; } public function close(): bool { return true; } }
return [
    'needs' => ['session'],
    'set' => function () { session_set_save_handler(new LeakSessionHandler); },
    'see' => fn () => session_module_name() . ini_get('session.save_handler'),
];
