<?php
// A multi handle with a transfer that a request leaves in a variable from the boot. The boot
// itself has none, because it would hold two sockets.
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
