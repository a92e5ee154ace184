<?php
// Not included at boot: a request compiles it first.
interface LeakLateSays
{
    public function say(): string;
}
class LeakLate implements LeakLateSays
{
    const NAME = 'late ' . PHP_MAJOR_VERSION;
    public static $value = 'new';
    public static function next(): int { static $n = 0; return ++$n; }
    public function say(): string { return static::$value === 'new' || static::$value === 'left' ? 'says' : 'broken'; }
}
return 'included';
