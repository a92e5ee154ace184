<?php

namespace Surus\Laravel;

use Illuminate\Container\Container;
use Illuminate\Foundation\Application;
use Illuminate\Http\Request;
use Surus\Retained;
use Symfony\Component\HttpFoundation\HeaderBag;
use Symfony\Component\HttpFoundation\ParameterBag;
use Symfony\Component\HttpFoundation\Request as SymfonyRequest;

/**
 * The empty request of the boot. Names code that reads it, and removes it from the services that
 * got it injected; a service made during the boot would otherwise use it for every visitor.
 */
final class BootRequest
{
    private const URL = 'http://localhost';

    /** How many places that read it are named. */
    private const MOST = 3;

    public readonly Request $request;

    /** @var array<string, true> files with lines */
    private array $places = [];

    /** Clones of the request share it. Without `note` it leads to no application. */
    private readonly object $observer;

    /** @var list<string> directories of the framework and of Surus */
    private readonly array $between;

    public function __construct(private readonly Application $app)
    {
        $directory = static fn (string $class) => \dirname(
            (new \ReflectionClass($class))->getFileName(),
            2
        );
        $this->between = [
            $directory(Request::class).'/',
            $directory(SymfonyRequest::class).'/',
            // Classes that Surus embeds are in no file: `surus://boot/…`.
            \dirname(__DIR__).'/',
        ];
        $this->observer = self::observer();
        $this->request = self::watched($this->observer);
        $this->observer->note = $this->noteReader(...);
    }

    /**
     * Call this when the boot has ended.
     *
     * @param \Closure(string): void $log
     */
    public function release(Retained $retained, \Closure $log): void
    {
        $this->observer->note = null;
        if ($this->places) {
            $log(sprintf(
                'surus: the boot has no visitor, but code reads the request there: %s; it gets %s, '
                .'and what it does with that is the same for all visitors; read the request in a '
                .'middleware, or use the engine "classic"',
                implode(', ', array_keys($this->places)),
                self::URL,
            ));
        }
        $instances = \Closure::bind(
            static fn (Container $app) => $app->instances,
            null,
            Container::class
        )($this->app);
        foreach ($instances as $name => $instance) {
            if (\is_object($instance)
                && Source::isApplication($this->app, new \ReflectionObject($instance))
                && \in_array($this->request, get_mangled_object_vars($instance), true)) {
                // The first request that needs the service creates it with its own request.
                $this->app->forgetInstance($name);
            }
        }
        unset($instances, $instance);
        if ($holder = $retained->holder($this->request, true)) {
            $log(sprintf(
                'surus: %s keeps the empty request of the boot and will serve visitors with it; '
                .'fetch the request when it is needed: request() or app("request")',
                $holder,
            ));
        }
    }

    /** Notes the application's innermost code that runs, or else a package's. */
    private function noteReader(): void
    {
        $reader = null;
        foreach (debug_backtrace(\DEBUG_BACKTRACE_IGNORE_ARGS) as $frame) {
            if (Runner::class === ($frame['class'] ?? null)) {
                break;
            }
            $file = $frame['file'] ?? null;
            if (null === $file || $this->isBetween($file)) {
                continue;
            }
            $isApplication = Source::hasFile($this->app, $file);
            if ($isApplication || null === $reader) {
                $reader = Source::short($this->app, $file).":$frame[line]";
            }
            if ($isApplication) {
                break;
            }
        }
        if (null !== $reader && \count($this->places) < self::MOST) {
            $this->places[$reader] = true;
        }
    }

    private function isBetween(string $file): bool
    {
        foreach ($this->between as $directory) {
            if (str_starts_with($file, $directory)) {
                return true;
            }
        }

        return false;
    }

    /** The class is anonymous because checkpoints leave out the classes of Surus. */
    private static function observer(): object
    {
        return new class {
            public ?\Closure $note = null;

            public function isRead(): void
            {
                $this->note && ($this->note)();
            }
        };
    }

    /**
     * A request that calls the observer before it is read. Its classes are anonymous like the
     * observer's.
     */
    private static function watched(object $observer): Request
    {
        $plain = Request::create(self::URL);
        $query = $plain->query->all();
        $server = $plain->server->all();
        $request = new class($query, [], [], [], [], $server) extends Request {
            public ?object $observer = null;

            public function getHost(): string
            {
                $this->observer?->isRead();

                return parent::getHost();
            }

            public function isSecure(): bool
            {
                $this->observer?->isRead();

                return parent::isSecure();
            }

            public function getPathInfo(): string
            {
                $this->observer?->isRead();

                return parent::getPathInfo();
            }

            public function getRequestUri(): string
            {
                $this->observer?->isRead();

                return parent::getRequestUri();
            }

            public function getQueryString(): ?string
            {
                $this->observer?->isRead();

                return parent::getQueryString();
            }

            public function getMethod(): string
            {
                $this->observer?->isRead();

                return parent::getMethod();
            }

            public function getContent(bool $asResource = false)
            {
                $this->observer?->isRead();

                return parent::getContent($asResource);
            }

            public function getClientIps(): array
            {
                $this->observer?->isRead();

                return parent::getClientIps();
            }

            public function get(string $key, mixed $default = null): mixed
            {
                $this->observer?->isRead();

                return parent::get($key, $default);
            }

            protected function getInputSource(): ParameterBag
            {
                $this->observer?->isRead();

                return parent::getInputSource();
            }

            protected function retrieveItem($source, $key, $default)
            {
                $this->observer?->isRead();

                return parent::retrieveItem($source, $key, $default);
            }
        };
        $request->headers = new class($request->headers->all()) extends HeaderBag {
            public ?object $observer = null;

            public function all(?string $key = null): array
            {
                $this->observer?->isRead();

                return parent::all($key);
            }
        };
        $request->observer = $request->headers->observer = $observer;

        return $request;
    }
}
