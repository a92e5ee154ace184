<?php
// A static variable of a method, and of the same method inherited.
class LeakStaticOfMethod
{
    public static function kept(?string $value = null): string
    {
        static $kept = 'booted';
        return $kept = $value ?? $kept;
    }
}
class LeakStaticOfMethodInherited extends LeakStaticOfMethod
{
}
return [
    'set' => function () { LeakStaticOfMethod::kept('left'); LeakStaticOfMethodInherited::kept('inherited'); },
    'see' => fn () => LeakStaticOfMethod::kept() . LeakStaticOfMethodInherited::kept(),
];
