<?php
// Destructors at the end of a request for objects in a global variable.
class LeakDestructorAtEnd { function __destruct() { file_put_contents(LEAK_STATE . '/destructed', 'yes'); } }
return [
    'set' => function () { @unlink(LEAK_STATE . '/destructed'); $GLOBALS['leak_destructed'] = new LeakDestructorAtEnd; },
    'see' => function () { clearstatcache(); return is_file(LEAK_STATE . '/destructed') ? 'destructed' : 'not destructed'; },
    'boot' => function () { touch(LEAK_STATE . '/destructed'); },
];
