<?php
// Multi and share handles of boot.
return [
    'needs' => ['curl'],
    'boot' => fn () => [curl_multi_init(), curl_share_init(), curl_init('http://127.0.0.1:1/')],
    'set' => function ($boot) { curl_multi_add_handle($boot[0], curl_init('http://127.0.0.1:1/')); curl_multi_exec($boot[0], $n); },
    'see' => function ($boot) { curl_multi_exec($boot[0], $n); return curl_multi_info_read($boot[0]) ? 'a result' : 'none'; },
];
