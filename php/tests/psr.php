<?php

// Tests that a PSR-15 handler gets requests, and that its whole response is sent.

namespace Psr\Http\Message {
    interface_exists(ServerRequestInterface::class) || eval('namespace Psr\Http\Message; interface ServerRequestInterface {} interface ResponseInterface {}');
}

namespace Psr\Http\Server {
    interface_exists(RequestHandlerInterface::class) || eval('namespace Psr\Http\Server; interface RequestHandlerInterface { public function handle(\Psr\Http\Message\ServerRequestInterface $request): \Psr\Http\Message\ResponseInterface; }');
}

namespace GuzzleHttp\Psr7 {
    // Stands in for a library that creates requests.
    final class ServerRequest implements \Psr\Http\Message\ServerRequestInterface
    {
        public static function fromGlobals(): self
        {
            return new self();
        }
    }
}

namespace {
    use Surus\Lambda\Context;
    use Surus\Lambda\Handler;

    final class Answered implements Psr\Http\Message\ResponseInterface
    {
        public function getBody(): string
        {
            return 'body';
        }

        public function getStatusCode(): int
        {
            return 201;
        }

        public function getHeaders(): array
        {
            return ['Set-Cookie' => ['a=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT', 'b=2'], 'Vary' => ['Accept', 'Cookie'], 'X-One' => ['1']];
        }
    }

    final class Answers implements Psr\Http\Server\RequestHandlerInterface
    {
        public function handle(Psr\Http\Message\ServerRequestInterface $request): Psr\Http\Message\ResponseInterface
        {
            return new Answered();
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
            same(false, $load('<?php return new class { function handle($event) {} };')->takesRequests);
        },
        'header values, especially cookies, are not joined' => static function () use ($load) {
            $answer = $load('<?php return new Answers();')->handle(null, new Context());
            same([201, 'body'], [$answer->status, $answer->body]);
            same((new Answered())->getHeaders(), $answer->headers);
        },
    ];
}
