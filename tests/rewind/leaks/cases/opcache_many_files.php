<?php
// New files with new classes and strings, compiled in each request.
return [
    'leaks' => false,
    'why' => 'each has its own name',
    'set' => function () {
        $n = random_int(0, 399);
        $file = LEAK_STATE . "/many$n.php";
        is_file($file) || file_put_contents($file, "<?php if (!class_exists('LeakMany$n', false)) { class LeakMany$n { const TEXT = 'text of many $n'; static function say() { static \$s = ['a$n' => 'b$n']; return self::TEXT . \$s['a$n']; } } } return LeakMany$n::say();");
        file_put_contents(LEAK_STATE . '/many', $n);
        include $file;
    },
    'see' => function () {
        $n = @file_get_contents(LEAK_STATE . '/many');
        return $n === false || (include LEAK_STATE . "/many$n.php") === "text of many {$n}b$n" ? 'works' : 'broken';
    },
];
