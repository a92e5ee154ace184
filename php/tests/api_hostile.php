<?php

// Tests that random input of clients is never answered as an error of the application.

namespace Surus\Tests\Hostile {
    use Surus\Api\ListOf;

    const ROUNDS = 3000;

    final class Item
    {
        public function __construct(
            public string $name,
            public float $price,
            public int|bool|null $count = 1
        )
        {
        }
    }

    final class Order
    {
        public function __construct(
            public string $customer,
            #[ListOf(Item::class)] public array $items,
            public ?\DateTimeImmutable $due = null
        )
        {
        }
    }
}

namespace {
    use Surus\Api\App;
    use Surus\Api\Request;
    use Surus\Tests\Hostile\Order;

    use const Surus\Tests\Hostile\ROUNDS;

    $app = new App(true);
    $app->post('/array', fn (array $body) => $body);
    $app->post('/order', fn (Order $order) => $order);
    $app->get('/a/{name}', fn (string $name, int $page = 1, string $q = '') => [$name, $page, $q]);
    $app->get('/b/{n:float}.{f}', fn (float $n, string $f) => [$n, $f]);
    $app->get('/c/{on}/x', fn (bool $on) => $on);
    /** Some of the pieces, in random order. */
    $some = static fn (array $pieces, int $most): string => implode(
        '',
        array_map(
            static fn () => $pieces[mt_rand(0, count($pieces) - 1)],
            range(0, mt_rand(0, $most))
        )
    );
    $answers = static function (Request $request, string $input) use ($app): void {
        $response = $app->handle($request);
        same([bin2hex($input), true], [bin2hex($input), $response->status < 500]);
        if ('' !== $response->body) {
            json_decode($response->body, false, 512, JSON_THROW_ON_ERROR);
        }
    };

    return [
        'mutated bodies are never an error of the application' => static function () use (
            $some,
            $answers
        ): void {
            mt_srand(7);
            $valid =
                '{"customer":"Gisgo","items":[{"name":"oats","price":1.5,"count":2}],"due":"2026-01-02T03:04:05Z"}';
            $pieces = [
                '"',
                ':',
                ',',
                '{',
                '}',
                '[',
                ']',
                '\\',
                '\u0000',
                '\ud800',
                "\xff",
                'ä',
                '1e999',
                '-0',
                'null',
                'true',
                '9223372036854775808',
                "\0",
                ' ',
                '"a":1'
            ];
            for ($round = 0; $round < ROUNDS; ++$round) {
                $at = mt_rand(0, strlen($valid));
                $body = substr($valid, 0, $at)
                    .$some($pieces, 2)
                    .substr($valid, $at + mt_rand(0, 4));
                foreach (['/array', '/order'] as $path) {
                    $answers(
                        Request::of('POST', $path, ['Content-Type' => 'application/json'], $body),
                        $body
                    );
                }
            }
        },
        'random paths are never an error of the application' => static function () use (
            $some,
            $answers
        ): void {
            mt_srand(7);
            $pieces = [
                '/a/',
                '/b/',
                '/c/',
                '/x',
                '/',
                '.',
                '..',
                '%',
                '%2',
                '%2f',
                '%00',
                '%ff',
                '%C3%A4',
                'ä',
                "\xe4",
                '7',
                '-',
                '0',
                'true',
                '?',
                '=',
                '&',
                'page',
                'q',
                '[]',
                '+',
                ' ',
                "\n"
            ];
            for ($round = 0; $round < ROUNDS; ++$round) {
                $target = $some($pieces, 6);
                foreach (['GET', 'HEAD', 'OPTIONS', 'BREW'] as $method) {
                    $answers(Request::of($method, $target), $target);
                }
            }
        },
    ];
}
