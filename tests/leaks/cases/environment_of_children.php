<?php
// The environment that child processes get.
return [
    'set' => function () { putenv('LEAK_ENV_CHILD=left'); },
    'see' => fn () => trim((string) shell_exec('echo "=$LEAK_ENV_CHILD"')),
];
