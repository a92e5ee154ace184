<?php
// A descriptor from the boot that a request closed and then used for another file.
return [
    'boot' => function () { $f = fopen(__FILE__, 'r'); stream_set_read_buffer($f, 0); return (object) ['file' => $f]; },
    'set' => function ($boot) { fclose($boot->file); $GLOBALS['leak_other'] = fopen('/etc/passwd', 'r'); },
    'see' => function ($boot) { if (!is_resource($boot->file)) { return 'closed'; } fseek($boot->file, 0); return fread($boot->file, 5); },
];
