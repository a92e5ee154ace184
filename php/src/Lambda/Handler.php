<?php

namespace Surus\Lambda;

use Illuminate\Contracts\Console\Kernel;
use Psr\Http\Server\RequestHandlerInterface;
use Symfony\Component\Console\Application;

/**
 * A handler of events, made from what its file returns: a callable, an object with `handle`, a
 * console, a PSR-15 handler.
 */
final readonly class Handler
{
    private function __construct(
        private \Closure $handle,
        /** The handler takes HTTP requests instead of the events that carry them. */
        public bool $takesRequests = false,
    ) {
    }

    /** Loads the file that returns the handler. */
    public static function load(string $file): self
    {
        if ('' === $file) {
            throw new \RuntimeException(
                'no handler is configured; name a PHP file that returns `function (array $event, Surus\Lambda\Context $context) {…}`: handler = "…" in [lambda] of surus.toml, or SURUS_LAMBDA_HANDLER'
            );
        }
        if (!is_file($file)) {
            throw new \RuntimeException(
                "the handler $file does not exist in "
                    .getcwd()
                    .'; `handler` in [lambda] or the environment variable _HANDLER names it'
            );
        }
        if ('#!' === file_get_contents($file, false, null, 0, 2)) {
            return self::of(Console::script($file), $file);
        }

        return self::of((static fn () => require $file)(), $file);
    }

    private static function of(mixed $returned, string $file): self
    {
        if ($returned instanceof Application || $returned instanceof Kernel) {
            $returned = Console::application($returned);
        }
        // A PSR-15 handler has `handle`, too, but for requests.
        if ($returned instanceof RequestHandlerInterface) {
            return new self(static fn () => Psr::answer($returned), true);
        }
        if (\is_callable($returned) && !\is_string($returned)) {
            return new self(self::prepare($returned(...)));
        }
        if (\is_object($returned) && method_exists($returned, 'handle')) {
            return new self(self::prepare($returned->handle(...)));
        }
        $what = 1 === $returned ? 'nothing' : get_debug_type($returned);
        throw new \UnexpectedValueException(
            "the handler $file returned $what, expected a function (array \$event, Surus\\Lambda\\Context \$context) or an object with `handle`"
        );
    }

    public function handle(mixed $event, Context $context): mixed
    {
        return ($this->handle)($event, $context);
    }

    /** Passes a callable what its parameters ask for, which is determined once. */
    private static function prepare(\Closure $handle): \Closure
    {
        $parameters = (new \ReflectionFunction($handle))->getParameters();
        $class = static fn (int $number) => (
            $parameters[$number] ?? null
        )?->getType() instanceof \ReflectionNamedType
            && !$parameters[$number]->getType()->isBuiltin()
            ? $parameters[$number]->getType()->getName() : null;
        $view = is_subclass_of($class(0) ?? '', Event\View::class) ? $class(0) : null;
        $other = 'Bref\Context\Context' === $class(1) ? $class(1) : null;
        // PHP's internal functions reject more arguments than they have parameters.
        $count = (new \ReflectionFunction($handle))->isVariadic() ? 2 : \count($parameters);

        return static function (mixed $event, Context $context) use (
            $handle,
            $view,
            $other,
            $count
        ): mixed {
            $event = $view ? new $view($event) : $event;
            $context = $other
                ? new $other(
                    $context->awsRequestId,
                    $context->deadlineMs,
                    $context->invokedFunctionArn,
                    $context->traceId
                )
                : $context;

            return $handle(...\array_slice([$event, $context], 0, $count));
        };
    }
}
