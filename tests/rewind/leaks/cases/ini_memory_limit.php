<?php
// memory_limit.
return [
    'set' => function () { ini_set('memory_limit', '777M'); },
    'see' => fn () => ini_get('memory_limit'),
];
