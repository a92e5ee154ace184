<?php
// More regular expressions than PHP's cache holds.
return [
    'heavy' => true,
    'leaks' => false,
    'why' => 'a cache only affects run time',
    'set' => function () { for ($i = 0; $i < 5000; $i++) { preg_match("/x$i(a|b)+/u", 'text'); } },
    'see' => fn () => preg_replace('/(\d+)-(?<b>\w+)/u', '$2-$1', '12-ab') . preg_match('/^\p{Lu}/u', 'Ä'),
];
