<?php
// A property of an object made at boot that a request unsets.
class LeakPropertyUnset { public string $value = 'booted'; }
return [
    'boot' => fn () => new LeakPropertyUnset,
    'set' => function ($boot) { unset($boot->value); },
    'see' => fn ($boot) => $boot->value ?? 'gone',
];
