<?php
// The booted script: runs this server's test. It leaves $_SERVER unchanged, because Phar modifies it itself.
surus_serve(function () {
    chdir(dirname(getenv('PHPT_FILE')));
    (static function () {
        require getenv('PHPT_FILE');
    })();
});
