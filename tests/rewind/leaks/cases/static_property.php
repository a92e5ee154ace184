<?php
// A static property.
class LeakStaticProperty
{
    public static $value = 'booted';
    private static array $list = [];
    public static function add(string $x): void { self::$list[] = $x; }
    public static function list(): string { return implode(',', self::$list); }
}
return [
    'set' => function () { LeakStaticProperty::$value = 'left'; LeakStaticProperty::add('left'); },
    'see' => fn () => LeakStaticProperty::$value . LeakStaticProperty::list(),
];
