<?php
// The booted script: runs the test that this server is for as if it had been asked for by itself.
surus_serve(function () {
    $_SERVER['SCRIPT_FILENAME'] = getenv('PHPT_FILE');
    chdir(dirname($_SERVER['SCRIPT_FILENAME']));
    (static function () {
        require $_SERVER['SCRIPT_FILENAME'];
    })();
});
