<?php
// A file: it is nobody's memory.
return [
    'survives' => 'files are not memory',
    'set' => function () { file_put_contents(LEAK_STATE . '/survives', 'left'); },
    'see' => fn () => is_file(LEAK_STATE . '/survives') ? 'left' : 'none',
];
