<?php
// Two thousand functions with static variables; a new one must still work.
return [
    'heavy' => true,
    'leaks' => false,
    'why' => 'each has its own name',
    'set' => function () {
        $id = bin2hex(random_bytes(6));
        $code = '';
        for ($i = 0; $i < 2000; $i++) {
            $code .= "function leak_many_{$id}_$i() { static \$n = 0; return ++\$n; } leak_many_{$id}_$i();";
        }
        eval($code);
    },
    'see' => function () {
        $name = 'leak_many_' . bin2hex(random_bytes(6));
        eval("function $name() { static \$n = 'new'; return \$n; }");
        return $name();
    },
];
