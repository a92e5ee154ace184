<?php
// A heap and a priority queue from the boot.
return [
    'boot' => function () { $h = new SplMinHeap; $h->insert(5); $q = new SplPriorityQueue; $q->insert('booted', 1); return [$h, $q]; },
    'set' => function ($boot) { $boot[0]->insert(1); $boot[1]->insert('left', 2); },
    'see' => fn ($boot) => $boot[0]->top() . $boot[1]->top(),
];
