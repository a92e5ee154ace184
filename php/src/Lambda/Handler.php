<?php

namespace Surus\Lambda;

use Illuminate\Contracts\Console\Kernel;
use Psr\Http\Server\RequestHandlerInterface;
use Symfony\Component\Console\Application;

/** What handles events, whatever form its file gives it: a callable, an object with `handle`, a console, a PSR-15 handler. */
final readonly class Handler
{
    private function __construct(
        private \Closure $handle,
        /** HTTP requests are for it as such, and not as the events that they have come as. */
        public bool $takesRequests = false,
    ) {
    }

    /** Loads the file that returns it. */
    public static function load(string $file): self
    {
        if ('' === $file) {
            throw new \RuntimeException('No handler is configured. Name a PHP file that returns `function (array $event, Surus\Lambda\Context $context) {…}`: handler = "…" in [lambda] of surus.toml, or SURUS_LAMBDA_HANDLER.');
        }
        if (!is_file($file)) {
            throw new \RuntimeException("The handler $file is not there, seen from ".getcwd().'. It is what `handler` in [lambda] or the environment variable _HANDLER names.');
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
        // It has `handle` too, but for requests.
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
        throw new \UnexpectedValueException("The handler $file has returned $what, and not a function (array \$event, Surus\\Lambda\\Context \$context), nor an object with `handle`.");
    }

    public function handle(mixed $event, Context $context): mixed
    {
        return ($this->handle)($event, $context);
    }

    /** Gives a callable what its parameters ask for, which is found out once. */
    private static function prepare(\Closure $handle): \Closure
    {
        $parameters = (new \ReflectionFunction($handle))->getParameters();
        $class = static fn (int $number) => ($parameters[$number] ?? null)?->getType() instanceof \ReflectionNamedType && !$parameters[$number]->getType()->isBuiltin()
            ? $parameters[$number]->getType()->getName() : null;
        $view = is_subclass_of($class(0) ?? '', Event\View::class) ? $class(0) : null;
        $other = 'Bref\Context\Context' === $class(1) ? $class(1) : null;
        // A function of PHP's own refuses more arguments than it has parameters.
        $count = (new \ReflectionFunction($handle))->isVariadic() ? 2 : \count($parameters);

        return static function (mixed $event, Context $context) use ($handle, $view, $other, $count): mixed {
            $event = $view ? new $view($event) : $event;
            $context = $other ? new $other($context->awsRequestId, $context->deadlineMs, $context->invokedFunctionArn, $context->traceId) : $context;

            return $handle(...\array_slice([$event, $context], 0, $count));
        };
    }
}
