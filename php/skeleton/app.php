<?php

// The routes. This file runs once where the engine boots, and for every request elsewhere.

use App\NewGreeting;
use Surus\Api\App;
use Surus\Api\Responds;
use Surus\Api\Response;

$app = new App();
$app->openApi('NAME');

$app->get('/', fn () => ['message' => 'Hello World!']);
$app->get('/greetings/{id:int}', fn (int $id) => ['id' => $id]);
$app->post(
    '/greetings',
    #[Responds(201)]
    fn (NewGreeting $greeting) => Response::created(
        '/greetings/1',
        ['message' => "Hello, $greeting->name!"]
    )
);

return $app;
