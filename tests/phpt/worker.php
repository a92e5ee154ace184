<?php
// The booted script: runs the test that this server is for. $_SERVER stays untouched: Phar changes it in its own way.
surus_serve(function () {
    chdir(dirname(getenv('PHPT_FILE')));
    (static function () {
        require getenv('PHPT_FILE');
    })();
});
