<?php

// Tests that middleware of PSR-15 runs as middleware of Surus\Api.

namespace Psr\Http\Message {
    interface_exists(ServerRequestInterface::class) || eval('namespace Psr\Http\Message; interface ServerRequestInterface {} interface ResponseInterface {}');
    interface_exists(ResponseFactoryInterface::class) || eval('namespace Psr\Http\Message; interface ResponseFactoryInterface { public function createResponse(int $code = 200, string $reasonPhrase = ""): ResponseInterface; }');
}

namespace Psr\Http\Server {
    interface_exists(RequestHandlerInterface::class) || eval('namespace Psr\Http\Server; interface RequestHandlerInterface { public function handle(\Psr\Http\Message\ServerRequestInterface $request): \Psr\Http\Message\ResponseInterface; }');
    interface_exists(MiddlewareInterface::class) || eval('namespace Psr\Http\Server; interface MiddlewareInterface { public function process(\Psr\Http\Message\ServerRequestInterface $request, RequestHandlerInterface $handler): \Psr\Http\Message\ResponseInterface; }');
}

namespace Surus\Tests\Psr {
    use Psr\Http\Message\ResponseFactoryInterface;
    use Psr\Http\Message\ResponseInterface;
    use Psr\Http\Message\ServerRequestInterface;
    use Psr\Http\Server\MiddlewareInterface;
    use Psr\Http\Server\RequestHandlerInterface;

    final class Asked implements ServerRequestInterface
    {
        private array $attributes = [];

        public function withAttribute(string $name, mixed $value): self
        {
            $copy = clone $this;
            $copy->attributes[$name] = $value;

            return $copy;
        }

        public function getAttributes(): array
        {
            return $this->attributes;
        }
    }

    final class Body
    {
        public string $text = '';

        public function write(string $text): void
        {
            $this->text .= $text;
        }

        public function __toString(): string
        {
            return $this->text;
        }
    }

    final class Answered implements ResponseInterface
    {
        private array $headers = [];

        public function __construct(private int $status, private Body $body = new Body())
        {
        }

        public function withHeader(string $name, string|array $values): self
        {
            $copy = clone $this;
            $copy->headers[$name] = (array) $values;

            return $copy;
        }

        public function getHeaders(): array
        {
            return $this->headers;
        }

        public function getStatusCode(): int
        {
            return $this->status;
        }

        public function getBody(): Body
        {
            return $this->body;
        }
    }

    final class Responses implements ResponseFactoryInterface
    {
        public function createResponse(int $code = 200, string $reasonPhrase = ''): ResponseInterface
        {
            return new Answered($code);
        }
    }

    /** Adds its name to an attribute and to the headers; answers itself if it is to stop. */
    final class Marks implements MiddlewareInterface
    {
        public function __construct(private string $name, private bool $stops = false)
        {
        }

        public function process(ServerRequestInterface $request, RequestHandlerInterface $handler): ResponseInterface
        {
            $seen = ($request->getAttributes()['seen'] ?? '').$this->name;

            return $this->stops
                ? (new Answered(403))->withHeader('content-type', 'text/plain')
                : $handler->handle($request->withAttribute('seen', $seen))->withHeader("X-$this->name", ['1', '2']);
        }
    }
}

namespace {
    use Surus\Api\App;
    use Surus\Api\Psr15Middleware;
    use Surus\Api\Request;
    use Surus\Tests\Psr\Asked;
    use Surus\Tests\Psr\Marks;
    use Surus\Tests\Psr\Responses;

    $of = static fn (Marks $middleware): Psr15Middleware => new Psr15Middleware($middleware, static fn () => new Asked(), new Responses());

    return [
        'PSR-15 middleware passes attributes on and changes responses' => static function () use ($of): void {
            $app = new App();
            $app->use($of(new Marks('a')), $of(new Marks('b')));
            $app->get('/', fn (Request $request) => ['seen' => $request->attribute('seen')]);
            $response = $app->handle(Request::of('GET', '/'));
            same([200, '{"seen":"ab"}', 'application/json', '1, 2', '1, 2'], [$response->status, $response->body, $response->header('Content-Type'), $response->header('x-a'), $response->header('x-b')]);
            $response = $app->handle(Request::of('GET', '/no'));
            same([404, 'application/problem+json', '1, 2'], [$response->status, $response->header('Content-Type'), $response->header('X-a')]);
        },
        'PSR-15 middleware may answer alone' => static function () use ($of): void {
            $app = new App();
            $app->get('/', fn () => throw new Exception('not reached'), $of(new Marks('a', true)));
            $response = $app->handle(Request::of('GET', '/'));
            same([403, '', 'text/plain'], [$response->status, $response->body, $response->header('Content-Type')]);
        },
    ];
}
