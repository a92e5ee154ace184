<?php
// A large array from the boot; a request appends to it, so that it moves in memory.
return [
    'boot' => fn () => (object) ['list' => range(1, 1000)],
    'set' => function ($boot) { for ($i = 0; $i < 5000; $i++) { $boot->list["left$i"] = $i; } unset($boot->list[3]); },
    'see' => fn ($boot) => count($boot->list) . ($boot->list[3] ?? 'gone'),
];
