<?php
// open_basedir, which a script can only narrow.
return [
    'set' => function () { ini_set('open_basedir', dirname(__DIR__)); },
    'see' => fn () => ini_get('open_basedir') . var_export(@is_dir('/usr'), true),
];
