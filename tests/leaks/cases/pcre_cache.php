<?php
// More regular expressions than PHP keeps compiled.
return [
    'heavy' => true,
    'leaks' => false,
    'why' => 'a cache changes nothing but time',
    'set' => function () { for ($i = 0; $i < 5000; $i++) { preg_match("/x$i(a|b)+/u", 'text'); } },
    'see' => fn () => preg_replace('/(\d+)-(?<b>\w+)/u', '$2-$1', '12-ab') . preg_match('/^\p{Lu}/u', 'Ä'),
];
