<?php
// opcache_reset: OPcache restarts at one of the next requests.
return [
    'leaks' => false,
    'why' => 'only the cache is lost',
    'set' => function () { opcache_reset(); },
    'see' => fn () => (include __DIR__ . '/../include/returns.php') . leak_opcache_reset(),
    'needs' => ['Zend OPcache'],
];
function leak_opcache_reset() { return implode(',', array_map(fn ($x) => $x . 'b', ['a', 'c'])); }
