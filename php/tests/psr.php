<?php

// Tests that a PSR-15 handler gets requests, and that its whole response is sent.

namespace GuzzleHttp\Psr7 {
    require_once '/usr/share/php/Slim/Psr7/autoload.php';
    interface_exists(\Psr\Http\Server\RequestHandlerInterface::class)
        || eval(
            'namespace Psr\Http\Server; interface RequestHandlerInterface { public function handle(\Psr\Http\Message\ServerRequestInterface $request): \Psr\Http\Message\ResponseInterface; }'
        );

    // Stands in for a library that creates requests.
    final class ServerRequest
    {
        public static function fromGlobals(): \Psr\Http\Message\ServerRequestInterface
        {
            return (new \Slim\Psr7\Factory\ServerRequestFactory())->createServerRequest('GET', '/');
        }
    }
}

namespace {
    use Slim\Psr7\Factory\StreamFactory;
    use Slim\Psr7\Headers;
    use Slim\Psr7\Response;
    use Surus\Lambda\Context;
    use Surus\Lambda\Handler;

    const HEADERS = [
        'Set-Cookie' => ['a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT', 'b=2'],
        'Vary' => ['Accept', 'Cookie'],
        'X-One' => ['1']
    ];

    final class Answers implements Psr\Http\Server\RequestHandlerInterface
    {
        public function handle(
            Psr\Http\Message\ServerRequestInterface $request
        ): Psr\Http\Message\ResponseInterface
        {
            return new Response(
                201,
                new Headers(HEADERS),
                (new StreamFactory())->createStream('body')
            );
        }
    }

    $load = static function (string $code): Handler {
        $file = tempnam(sys_get_temp_dir(), 'handler');
        try {
            file_put_contents($file, $code);

            return Handler::load($file);
        } finally {
            unlink($file);
        }
    };

    return [
        'only a PSR-15 handler takes requests' => static function () use ($load) {
            same(true, $load('<?php return new Answers();')->takesRequests);
            same(false, $load('<?php return fn ($event) => $event;')->takesRequests);
            same(
                false,
                $load('<?php return new class { function handle($event) {} };')->takesRequests
            );
        },
        'header values, especially cookies, are not joined' => static function () use ($load) {
            $answer = $load('<?php return new Answers();')->handle(null, new Context());
            same([201, 'body'], [$answer->status, (string) $answer->body]);
            same(HEADERS, $answer->headers);
        },
    ];
}
