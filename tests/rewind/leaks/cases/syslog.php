<?php
// openlog and closelog: later messages must use the original connection.
return [
    'leaks' => false,
    'why' => 'no script can see it',
    'set' => function () { openlog('left', LOG_NDELAY | LOG_PERROR, LOG_USER); },
    'see' => fn () => count(glob('/proc/self/fd/*')) > 0 ? 'fine' : 'none',
];
