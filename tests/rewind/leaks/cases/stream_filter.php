<?php
// A stream filter that a request registers, and one on a stream from the boot.
class LeakFilter extends php_user_filter { public function filter($in, $out, &$consumed, bool $closing): int { while ($b = stream_bucket_make_writeable($in)) { $b->data = strrev($b->data); $consumed += $b->datalen; stream_bucket_append($out, $b); } return PSFS_PASS_ON; } }
return [
    'boot' => fn () => fopen('php://memory', 'w+'),
    'set' => function ($boot) { stream_filter_register('left', 'LeakFilter'); stream_filter_append($boot, 'left', STREAM_FILTER_WRITE); },
    'see' => function ($boot) { ftruncate($boot, 0); rewind($boot); fwrite($boot, 'abc'); rewind($boot); return stream_get_contents($boot) . var_export(in_array('left', stream_get_filters()), true); },
];
