<?php
// A closure from the boot that is replaced by a copy bound to another object.
return [
    'boot' => function () { $h = new stdClass; $h->closure = function () { return isset($this) && isset($this->left) ? 'left' : 'booted'; }; return $h; },
    'set' => function ($boot) { $boot->closure = Closure::bind($boot->closure, new class { public $left = 1; }); },
    'see' => fn ($boot) => ($boot->closure)(),
];
