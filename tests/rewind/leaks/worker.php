<?php
// The booted script: loads all cases with their boot state, then serves requests.
require __DIR__ . '/play.php';

(function () {
    $cases = leak_cases(leak_names());
    $boot = array_map(leak_boot(...), $cases);
    surus_serve(function () use ($cases, $boot) {
        if (!isset($_GET['case'])) {
            echo leak_list($cases);
            return;
        }
        leak_play($cases[$_GET['case']], $boot[$_GET['case']]);
    });
})();
