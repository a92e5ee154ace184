<?php

// Run by: php tests/app.php

declare(strict_types=1);

require_once __DIR__.'/../src/app.php';

function check(bool $holds, string $what): void
{
    global $failed;
    echo $holds ? 'ok      ' : 'FAILED  ', $what, "\n";
    $failed = $failed || !$holds;
}

$failed = false;

[$status, $body] = App\answer('GET', '/', []);
check($status === 200 && str_contains($body, '<h1>Hello world</h1>'), 'the home page says hello');

[, $body] = App\answer('GET', '/', ['name' => '<b>']);
check(str_contains($body, 'Hello &lt;b&gt;'), 'a name is escaped');

[$status] = App\answer('GET', '/none', []);
check($status === 404, 'an unknown page is not found');

[$status] = App\answer('POST', '/', []);
check($status === 405, 'other methods are not allowed');

exit($failed ? 1 : 0);
