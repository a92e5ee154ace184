<?php

// Tests of the API, without a server: php tests/run.php

use Surus\Api\Request;

require_once __DIR__.'/../vendor/autoload.php';

$app = require __DIR__.'/../app.php';

$tests = [
    'root_says_hello' => [Request::of('GET', '/'), 200, ['message' => 'Hello World!']],
    'greeting_is_created' => [
        Request::json('POST', '/greetings', ['name' => 'Surus']),
        201,
        ['message' => 'Hello, Surus!']
    ],
    'greeting_without_name_is_refused' => [Request::json(
        'POST',
        '/greetings',
        new stdClass()
    ), 422, [
        'type' =>
            'about:blank', 'title' =>
            'Unprocessable Content', 'status' =>
            422, 'detail' =>
            'the body does not have the expected form',
        'errors' => [['detail' => 'is missing', 'pointer' => '#/name']],
    ]],
];

$failed = 0;
foreach ($tests as $name => [$request, $status, $data]) {
    $response = $app->handle($request);
    $passed = [$status, $data] === [$response->status, $response->data()];
    echo $passed
        ? 'ok      '
        : 'FAILED  ', $name, $passed
        ? "\n"
        : ": $response->status $response->body\n";
    $failed += $passed ? 0 : 1;
}
exit($failed ? 1 : 0);
