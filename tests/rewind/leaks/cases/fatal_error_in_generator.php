<?php
// A fatal error inside a generator inside a fiber inside a callback from the boot.
return [
    'leaks' => false,
    'why' => 'a fatal error ends only its own request',
    'ends' => true,
    'set' => function () { (new Fiber(function () { array_map(function () { foreach ((function () { yield 1; eval('abstract class LeakF { abstract function f() {} }'); })() as $x); }, [1]); }))->start(); },
    'see' => function () { $f = new Fiber(fn () => Fiber::suspend('works')); return $f->start(); },
];
