<?php
// The session's module, cache limiter and cookie.
return [
    'needs' => ['session'],
    'set' => function () { session_cache_limiter('public'); session_cache_expire(7); session_set_cookie_params(['path' => '/left', 'samesite' => 'Strict']); session_save_path('/left'); },
    'see' => fn () => json_encode([session_module_name(), session_cache_limiter(), session_cache_expire(), session_get_cookie_params(), session_save_path()]),
];
