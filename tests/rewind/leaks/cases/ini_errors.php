<?php
// Settings for the display and logging of errors.
return [
    'set' => function () { foreach (['display_errors' => 'stderr', 'html_errors' => '1', 'log_errors' => '0', 'error_log' => '/dev/null', 'error_prepend_string' => 'left', 'ignore_repeated_errors' => '1', 'docref_root' => '/left'] as $n => $v) { ini_set($n, $v); } },
    'see' => fn () => json_encode(array_map('ini_get', ['display_errors', 'html_errors', 'log_errors', 'error_log', 'error_prepend_string', 'ignore_repeated_errors', 'docref_root'])),
];
