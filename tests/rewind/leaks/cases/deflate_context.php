<?php
// A compressor and a decompressor from the boot that a request feeds.
return [
    'needs' => ['zlib'],
    'boot' => fn () => inflate_init(ZLIB_ENCODING_RAW),
    'set' => function ($boot) { inflate_add($boot, gzdeflate('left'), ZLIB_SYNC_FLUSH); },
    'see' => fn ($boot) => (string) inflate_get_read_len($boot),
];
