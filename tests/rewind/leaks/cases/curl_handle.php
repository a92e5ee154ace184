<?php
// A curl handle from the boot: options, cookies.
return [
    'needs' => ['curl'],
    'boot' => function () { $c = curl_init('http://booted.test/'); curl_setopt($c, CURLOPT_PRIVATE, 'booted'); return $c; },
    'set' => function ($boot) { curl_setopt($boot, CURLOPT_PRIVATE, 'left'); curl_setopt($boot, CURLOPT_URL, 'http://left.test/'); curl_setopt($boot, CURLOPT_COOKIELIST, 'Set-Cookie: left=left; domain=left.test'); },
    'see' => fn ($boot) => json_encode([curl_getinfo($boot, CURLINFO_PRIVATE), curl_getinfo($boot, CURLINFO_EFFECTIVE_URL), curl_getinfo($boot, CURLINFO_COOKIELIST)]),
];
