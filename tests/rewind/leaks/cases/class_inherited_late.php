<?php
// A class from the boot that a request extends, which links it.
class LeakInheritedLate { public static $value = 'booted'; public function say() { return 'booted'; } }
return [
    'set' => function () { eval('class LeakInheritedLateChild extends LeakInheritedLate { function say() { return "left"; } }'); LeakInheritedLateChild::$value = 'left'; },
    'see' => fn () => LeakInheritedLate::$value . count(array_filter(get_declared_classes(), fn ($c) => is_subclass_of($c, 'LeakInheritedLate'))),
];
