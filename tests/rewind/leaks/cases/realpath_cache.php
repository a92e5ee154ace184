<?php
// The realpath cache.
return [
    'set' => function () { realpath(LEAK_STATE); mkdir($d = LEAK_STATE . '/real' . getmypid()); realpath($d); file_put_contents(LEAK_STATE . '/realpath', $d); rmdir($d); touch($d); is_file($d); unlink($d); mkdir($d); realpath($d); shell_exec('rmdir ' . escapeshellarg($d)); },
    'see' => fn () => var_export(isset(realpath_cache_get()[(string) @file_get_contents(LEAK_STATE . '/realpath')]), true),
];
