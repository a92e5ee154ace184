<?php
// An anonymous class: its name and its statics.
function leak_class_anonymous() { return new class { public static $n = 0; }; }
return [
    'set' => function () { leak_class_anonymous()::$n = 'left'; },
    'see' => fn () => leak_class_anonymous()::$n,
];
