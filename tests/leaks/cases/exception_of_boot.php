<?php
// An exception of boot whose trace or message a request extends.
class LeakException extends Exception { public function add($x) { $this->message .= $x; } }
return [
    'boot' => fn () => new LeakException('booted'),
    'set' => function ($boot) { $boot->add('left'); },
    'see' => fn ($boot) => $boot->getMessage(),
];
