<?php
// Objects that a request leaves in a global variable are destructed at its end.
class LeakDestructorAtEnd { function __destruct() { file_put_contents(LEAK_STATE . '/destructed', 'yes'); } }
return [
    'set' => function () { @unlink(LEAK_STATE . '/destructed'); $GLOBALS['leak_destructed'] = new LeakDestructorAtEnd; },
    'see' => function () { clearstatcache(); return is_file(LEAK_STATE . '/destructed') ? 'destructed' : 'not destructed'; },
    'boot' => function () { touch(LEAK_STATE . '/destructed'); },
];
