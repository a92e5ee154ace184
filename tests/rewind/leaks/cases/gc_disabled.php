<?php
// gc_disable.
return [
    'set' => function () { gc_disable(); },
    'see' => fn () => var_export(gc_enabled(), true),
];
