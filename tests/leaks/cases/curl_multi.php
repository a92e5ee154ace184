<?php
// A multi handle with a transfer in it that a request leaves in a variable of boot. Boot itself has none: it holds two sockets.
return [
    'needs' => ['curl'],
    'boot' => fn () => (object) ['multi' => null],
    'set' => function ($boot) {
        $boot->multi = curl_multi_init();
        curl_multi_add_handle($boot->multi, curl_init('http://127.0.0.1:1/'));
        curl_multi_exec($boot->multi, $n);
    },
    'see' => fn ($boot) => $boot->multi ? 'left' : 'none',
];
