<?php
// A file, which is outside the process.
return [
    'survives' => 'files are not memory',
    'set' => function () { file_put_contents(LEAK_STATE . '/survives', 'left'); },
    'see' => fn () => is_file(LEAK_STATE . '/survives') ? 'left' : 'none',
];
