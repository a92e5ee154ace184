<?php
// The new content of a changed file after opcache_invalidate.
return [
    'leaks' => false,
    'why' => 'the script invalidates the file in OPcache',
    'set' => function () {
        $file = LEAK_STATE . '/changing.php';
        file_put_contents($file, '<?php return ["' . bin2hex(random_bytes(8)) . '", fn () => "' . random_int(1, 1 << 40) . '"];');
        function_exists('opcache_invalidate') && opcache_invalidate($file, true);
        include $file;
    },
    'see' => function () {
        $file = LEAK_STATE . '/changing.php';
        return !is_file($file) || str_contains(file_get_contents($file), (include $file)[0]) ? 'as it is' : 'as it was';
    },
];
