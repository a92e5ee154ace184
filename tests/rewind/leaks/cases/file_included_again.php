<?php
// include_once of what an earlier request included.
return [
    'set' => function () { include_once __DIR__ . '/../include/returns.php'; },
    'see' => fn () => var_export(include_once __DIR__ . '/../include/returns.php', true),
];
