<?php
// A static property from a trait in two classes.
trait LeakStaticPropertyOfTrait { public static $value = 'booted'; }
class LeakTraitUserA { use LeakStaticPropertyOfTrait; }
class LeakTraitUserB { use LeakStaticPropertyOfTrait; }
return [
    'set' => function () { LeakTraitUserB::$value = 'left'; },
    'see' => fn () => LeakTraitUserA::$value . LeakTraitUserB::$value,
];
