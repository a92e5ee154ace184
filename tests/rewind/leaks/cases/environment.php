<?php
// putenv.
return [
    'set' => function () { putenv('LEAK_ENV=left'); },
    'see' => fn () => getenv('LEAK_ENV') ?: 'none',
];
