<?php
// An error in a shutdown function and in a destructor, after the response.
class LeakShutdownError { function __destruct() { throw new Exception('left'); } }
return [
    'leaks' => false,
    'why' => 'the shutdown belongs to its request only',
    'ends' => true,
    'set' => function () { $GLOBALS['leak_destructs'] = new LeakShutdownError; register_shutdown_function(function () { throw new Exception('left'); }); },
    'see' => fn () => ob_get_level() . http_response_code(),
];
