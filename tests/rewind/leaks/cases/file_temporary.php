<?php
// tmpfile(): the file disappears with its stream.
return [
    'set' => function () { $GLOBALS['leak_tmpfile'] = $f = tmpfile(); file_put_contents(LEAK_STATE . '/tmpfile', stream_get_meta_data($f)['uri']); },
    'see' => function () { $path = @file_get_contents(LEAK_STATE . '/tmpfile'); clearstatcache(); return var_export($path && is_file($path), true); },
];
