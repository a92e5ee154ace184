<?php

use App\NewOrder;
use App\Order;
use App\Status;
use Surus\Api\App;
use Surus\Api\Group;
use Surus\Api\Problem;
use Surus\Api\Request;
use Surus\Api\Responds;
use Surus\Api\Response;

$app = new App();
$app->openApi('Orders', '1.0.0');

// Around everything, errors included.
$app->use(
    static fn (Request $request, callable $next) => $next($request)->with(
        'X-Content-Type-Options',
        'nosniff'
    )
);

$app->get('/', fn () => ['message' => 'Hello World!']);
$app->get(
    '/hello/{name}',
    fn (string $name, bool $loud = false) => ['hello' => $loud ? strtoupper($name) : $name]
);
$app->post('/echo', fn (array $body) => $body);

$app->group('/orders', static function (Group $orders): void {
    $orders->get('', /** Lists orders of a status. */ fn (Status $status = Status::Open): array => [
        'status' => $status,
        'orders' => [],
    ]);
    $orders->get('/{id:int}', /** Shows an order. */ fn (int $id): Order => $id < 1000
        ? new Order($id, Status::Open, 'Gisgo')
        : throw new Problem(404, "there is no order $id"));
    $orders->post('', /** Places an order. */ #[Responds(201)] fn (
        NewOrder $order
    ): Response => Response::created('/orders/1', [
        'customer' => $order->customer,
        'total' => $order->total(),
        'due' => $order->due?->format(DATE_RFC3339),
    ]));
    $orders->delete('/{id:int}', /** Cancels an order. */ function (int $id): void {
    });
});

// Clients see nothing of a bug, unless APP_ENV is `dev`.
$app->get('/broken', fn () => throw new LogicException('this is in the log'));
$app->get('/binary', fn () => ['name' => "not UTF-8: \xff"]);

return $app;
