<?php
// A fiber that the boot started and a request resumes.
return [
    'boot' => function () { $f = new Fiber(function () { $n = 0; while (true) { $n++; $got = Fiber::suspend("step $n"); } }); $h = new stdClass; $h->fiber = $f; $h->said = $f->start(); return $h; },
    'set' => function ($boot) { $boot->said = $boot->fiber->resume(); },
    'see' => fn ($boot) => $boot->said,
];
