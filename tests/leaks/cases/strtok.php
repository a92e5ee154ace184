<?php
// strtok's remaining tokens.
return [
    'set' => function () { strtok('left over text', ' '); },
    'see' => fn () => var_export(strtok(' '), true),
];
