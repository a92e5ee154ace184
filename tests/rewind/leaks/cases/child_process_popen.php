<?php
// The same with popen, which has a pipe.
return [
    'needs' => ['pcntl'],
    'slow' => true,
    'set' => function () { $GLOBALS['leak_popen'] = popen('exec sleep 0.05', 'r'); },
    'see' => fn () => leak_descriptors() . (pcntl_waitpid(-1, $status, WNOHANG) === -1 ? 'no child' : 'a child'),
];
