<?php
// More regular expressions than PHP keeps compiled.
return [
    'leaks' => false,
    'why' => 'a cache changes nothing but time',
    'set' => function () { $r = random_int(0, 1 << 40); for ($i = 0; $i < 300; $i++) { preg_match("/x{$r}_$i(a|b)+/u", 'text'); } },
    'see' => fn () => preg_replace('/(\d+)-(?<b>\w+)/u', '$2-$1', '12-ab') . preg_match('/^\p{Lu}/u', 'Ä'),
];
