<?php
// A readonly property that a request initialises.
class LeakReadonly { public readonly string $value; public function init() { $this->value = 'left'; } }
return [
    'boot' => fn () => new LeakReadonly,
    'set' => function ($boot) { $boot->init(); },
    'see' => fn ($boot) => $boot->value ?? 'none',
];
