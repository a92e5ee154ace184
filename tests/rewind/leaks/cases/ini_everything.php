<?php
// Every php.ini entry that a script may set.
return [
    'set' => function () {
        foreach (ini_get_all() as $name => $entry) {
            if (($entry['access'] & INI_USER) && is_numeric($entry['local_value']) && !preg_match('/^(memory_limit|max_execution_time|session\.|opcache\.|zend\.|pcre\.|hard_timeout|zlib\.|ffi|output_buffering|apc|error_reporting)/', $name)) {
                @ini_set($name, (string) ($entry['local_value'] + 1));
            }
        }
    },
    'see' => fn () => json_encode(array_map(fn ($entry) => $entry['local_value'], ini_get_all())),
];
