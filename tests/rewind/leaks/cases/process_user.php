<?php
// The user of the process, which no request can change.
return [
    'needs' => ['posix'],
    'leaks' => false,
    'why' => 'it lacks the permission',
    'set' => function () { @posix_seteuid(0); @posix_setegid(0); @posix_initgroups('root', 0); },
    'see' => fn () => json_encode([posix_getuid(), posix_geteuid(), posix_getegid(), posix_getgroups()]),
];
