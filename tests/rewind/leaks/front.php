<?php
// The script for engines that boot nothing: every request creates the boot state of its case.
require __DIR__ . '/play.php';

(function () {
    if (!isset($_GET['case'])) {
        echo leak_list(leak_cases(leak_names()));
        return;
    }
    $name = $_GET['case'];
    $case = leak_cases([$name])[$name];
    leak_play($case, leak_boot($case));
})();
