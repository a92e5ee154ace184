<?php
// umask.
return [
    'leaks' => false,
    'why' => 'the end of a request puts it back',
    'set' => function () { umask(0777); },
    'see' => fn () => decoct(umask()),
];
