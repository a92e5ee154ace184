<?php
// Files that a request leaves open in a global variable.
return [
    'set' => function () { for ($i = 0; $i < 20; $i++) { $GLOBALS['leak_files'][] = fopen(__FILE__, 'r'); } },
    'see' => fn () => leak_descriptors(),
];
