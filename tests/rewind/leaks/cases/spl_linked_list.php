<?php
// A linked list from the boot: its content and its iterator's position.
return [
    'boot' => function () { $l = new SplDoublyLinkedList; $l->push('a'); $l->push('b'); $l->rewind(); return $l; },
    'set' => function ($boot) { $boot->push('left'); $boot->next(); },
    'see' => fn ($boot) => count($boot) . $boot->current(),
];
