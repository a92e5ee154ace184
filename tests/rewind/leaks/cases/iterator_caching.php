<?php
// Iterators from the boot that wrap others.
return [
    'boot' => function () { $i = new CachingIterator(new LimitIterator(new InfiniteIterator(new ArrayIterator(['a', 'b', 'c'])), 1, 9)); $i->rewind(); return $i; },
    'set' => function ($boot) { $boot->next(); $boot->next(); },
    'see' => fn ($boot) => $boot->current() . $boot->getInnerIterator()->getPosition(),
];
