<?php
// A curl handle from the boot with a failed last transfer.
return [
    'needs' => ['curl'],
    'boot' => function () { $c = curl_init('http://127.0.0.1:1/'); curl_setopt($c, CURLOPT_RETURNTRANSFER, true); return $c; },
    'set' => function ($boot) { curl_exec($boot); },
    'see' => fn ($boot) => curl_errno($boot) . curl_error($boot),
];
