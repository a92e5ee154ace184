<?php
// An object from the boot that a request destroys: its destructor runs.
class LeakDestroyed { public function __construct(public stdClass $holder) {} public function __destruct() { $this->holder->said = 'destroyed'; } }
return [
    'boot' => function () { $holder = (object) ['said' => 'alive']; $holder->object = new LeakDestroyed($holder); return $holder; },
    'set' => function ($boot) { $boot->object = null; gc_collect_cycles(); },
    'see' => fn ($boot) => $boot->said,
];
