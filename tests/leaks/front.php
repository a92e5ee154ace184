<?php
// The same for engines that boot nothing: every request makes what its case has at boot.
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
