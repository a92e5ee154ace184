<?php
// strtok's remaining tokens.
return [
    'leaks' => false,
    'why' => 'the end of a request forgets it',
    'set' => function () { strtok('left over text', ' '); },
    'see' => fn () => var_export(strtok(' '), true),
];
