<?php
// Cookies in a share handle from the boot.
return [
    'needs' => ['curl'],
    'boot' => function () { $s = curl_share_init(); curl_share_setopt($s, CURLSHOPT_SHARE, CURL_LOCK_DATA_COOKIE); return $s; },
    'set' => function ($boot) { $c = curl_init(); curl_setopt($c, CURLOPT_SHARE, $boot); curl_setopt($c, CURLOPT_COOKIELIST, 'Set-Cookie: left=left; domain=left.test'); },
    'see' => function ($boot) { $c = curl_init(); curl_setopt($c, CURLOPT_SHARE, $boot); curl_setopt($c, CURLOPT_COOKIEFILE, ''); return count(curl_getinfo($c, CURLINFO_COOKIELIST)) . ' cookies'; },
];
