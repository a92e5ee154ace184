<?php
// 200 MB in one string.
return [
    'heavy' => true,
    'set' => function () { ini_set('memory_limit', '1G'); $GLOBALS['leak_big'] = str_repeat('x', 200_000_000); },
    'see' => fn () => memory_get_usage() > 50_000_000 ? 'much' : 'little',
];
