<?php
// A file that the boot opened and a request closed.
return [
    'boot' => fn () => fopen(__FILE__, 'r'),
    'set' => function ($boot) { fclose($boot); },
    'see' => fn ($boot) => is_resource($boot) ? fgets($boot, 3) . (fseek($boot, 0) ?: '') : 'closed',
];
