<?php
// A linked list of boot: its content and where its iterator stands.
return [
    'boot' => function () { $l = new SplDoublyLinkedList; $l->push('a'); $l->push('b'); $l->rewind(); return $l; },
    'set' => function ($boot) { $boot->push('left'); $boot->next(); },
    'see' => fn ($boot) => count($boot) . $boot->current(),
];
