<?php
// A WeakReference from the boot to an object that a request destroys.
return [
    'boot' => function () { $holder = new stdClass; $holder->object = new stdClass; $holder->weak = WeakReference::create($holder->object); return $holder; },
    'set' => function ($boot) { $boot->object = null; },
    'see' => fn ($boot) => $boot->weak->get() ? 'alive' : 'destroyed',
];
