<?php
// gettext's domain and its directory.
return [
    'needs' => ['gettext'],
    'set' => function () { bindtextdomain('left', '/tmp'); textdomain('left'); },
    'see' => fn () => textdomain(null) . '/' . var_export(@bindtextdomain('left', null), true),
];
