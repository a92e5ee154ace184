<?php
// Three hundred thousand small objects and strings.
return [
    'heavy' => true,
    'set' => function () { ini_set('memory_limit', '1G'); for ($i = 0; $i < 300_000; $i++) { $GLOBALS['leak_many'][] = (object) ['n' => "left$i"]; } },
    'see' => fn () => memory_get_usage() > 30_000_000 ? 'much' : 'little',
];
