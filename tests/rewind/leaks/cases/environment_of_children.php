<?php
// The environment of child processes.
return [
    'set' => function () { putenv('LEAK_ENV_CHILD=left'); },
    'see' => fn () => trim((string) shell_exec('echo "=$LEAK_ENV_CHILD"')),
];
