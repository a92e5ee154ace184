<?php
// Limits of regular expressions, and their JIT.
return [
    'set' => function () { ini_set('pcre.jit', '0'); ini_set('pcre.backtrack_limit', '10'); ini_set('pcre.recursion_limit', '10'); },
    'see' => fn () => var_export(preg_match('/(a+)+b\1{2}$/', str_repeat('a', 12)), true) . ini_get('pcre.jit') . ini_get('pcre.backtrack_limit'),
];
