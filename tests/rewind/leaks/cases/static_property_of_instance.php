<?php
// The instance of a singleton.
class LeakSingleton
{
    private static ?self $instance = null;
    public string $value = 'fresh';
    public static function get(): self { return self::$instance ??= new self; }
}
return [
    'set' => function () { LeakSingleton::get()->value = 'left'; },
    'see' => fn () => LeakSingleton::get()->value,
];
