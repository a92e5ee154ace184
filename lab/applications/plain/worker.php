<?php
// The same pages for engines that boot a script: what is asked most is loaded, the others are included.
$hello = static function (): void {
    header('Content-Type: application/json');
    echo json_encode(['hello' => 'world']);
};
surus_serve(static fn () => '/hello.php' === $_SERVER['SCRIPT_NAME'] ? $hello() : require $_SERVER['SCRIPT_FILENAME']);
