<?php
// A WeakMap from the boot.
return [
    'boot' => fn () => [$map = new WeakMap, $key = new stdClass],
    'set' => function ($boot) { $boot[0][$boot[1]] = 'left'; },
    'see' => fn ($boot) => $boot[0][$boot[1]] ?? 'none',
];
