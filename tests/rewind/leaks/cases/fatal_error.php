<?php
// A fatal error.
return [
    'leaks' => false,
    'why' => 'a fatal error ends only its own request',
    'ends' => true,
    'set' => function () { ob_start(); eval('class LeakFatal implements Iterator {}'); },
    'see' => fn () => ob_get_level() . http_response_code() . var_export(class_exists('LeakFatal', false), true),
];
