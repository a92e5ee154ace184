<?php
// The booted script. It draws before the first request, so that every source is already seeded.
require __DIR__ . '/draw.php';

(function () {
    $boot = random_boot();
    random_draw($boot);
    surus_serve(fn () => random_answer($boot));
})();
