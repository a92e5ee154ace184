<?php
// An ArrayObject from the boot.
return [
    'boot' => fn () => new ArrayObject(['booted']),
    'set' => function ($boot) { $boot[] = 'left'; $boot->setFlags(ArrayObject::ARRAY_AS_PROPS); },
    'see' => fn ($boot) => json_encode($boot->getArrayCopy()) . $boot->getFlags(),
];
