<?php
// An exception from the boot; a request extends its trace or message.
class LeakException extends Exception { public function add($x) { $this->message .= $x; } }
return [
    'boot' => fn () => new LeakException('booted'),
    'set' => function ($boot) { $boot->add('left'); },
    'see' => fn ($boot) => $boot->getMessage(),
];
