<?php
// What strtok has not given yet.
return [
    'set' => function () { strtok('left over text', ' '); },
    'see' => fn () => var_export(strtok(' '), true),
];
