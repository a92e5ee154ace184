<?php
// Uncollected reference cycles.
return [
    'set' => function () { for ($i = 0; $i < 3000; $i++) { $a = new stdClass; $a->self = $a; } },
    'see' => fn () => gc_status()['roots'] > 2000 ? 'many' : 'few',
];
