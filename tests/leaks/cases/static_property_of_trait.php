<?php
// A static property that a trait brings, in two classes.
trait LeakStaticPropertyOfTrait { public static $value = 'booted'; }
class LeakTraitUserA { use LeakStaticPropertyOfTrait; }
class LeakTraitUserB { use LeakStaticPropertyOfTrait; }
return [
    'set' => function () { LeakTraitUserB::$value = 'left'; },
    'see' => fn () => LeakTraitUserA::$value . LeakTraitUserB::$value,
];
