<?php
// TZ in the environment, which libc reads.
return [
    'needs' => ['intl'],
    'set' => function () { putenv('TZ=Asia/Tokyo'); },
    'see' => fn () => getenv('TZ') . shell_exec('date +%Z'),
];
