<?php
header('Content-Type: text/plain');
var_export($_POST);
echo "\n";
$paths = [];
array_walk_recursive($_FILES, function (&$value, $key) use (&$paths) {
    if (is_string($value) && str_starts_with($value, sys_get_temp_dir() . '/php')) {
        $paths[] = $value;
        $value = 'temporary: ' . filesize($value) . ' ' . md5_file($value)
            . ' uploaded=' . var_export(is_uploaded_file($value), true)
            . ' mode=' . decoct(fileperms($value) & 0777);
    }
});
var_export($_FILES);
echo "\n", count($paths), " temporary files\n";
