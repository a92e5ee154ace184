<?php
// The ids of new objects: a hundred leftover objects would increase them.
return [
    'set' => function () { for ($i = 0; $i < 100; $i++) { $GLOBALS['leak_objects'][] = new stdClass; } },
    'see' => fn () => 'object ' . spl_object_id(new stdClass),
];
