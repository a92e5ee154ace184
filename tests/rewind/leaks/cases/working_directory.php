<?php
// chdir.
return [
    'leaks' => false,
    'why' => 'the end of a request puts it back',
    'set' => function () { chdir('/'); },
    'see' => fn () => getcwd(),
];
