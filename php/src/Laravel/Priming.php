<?php

namespace Surus\Laravel;

use Illuminate\Container\Container;
use Illuminate\Database\Eloquent\Casts\Attribute;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Foundation\Application;
use Illuminate\Support\Pluralizer;
use Surus\Warmup;

/**
 * Creates after the warm-ups, by name, what each request would create again: services of Laravel,
 * and what Eloquent finds out about classes of models.
 *
 * None of it runs code of the application or of a package, which may look at the request. A service
 * is created if Laravel's own code alone creates it. A model is booted if it adds nothing to that.
 */
final class Priming
{
    /** Not `redirect`: it creates the session, with a random id that all visitors would share. */
    private const SERVICES = [
        'auth', 'blade.compiler', 'cache', 'cookie', 'db', 'db.factory', 'encrypter', 'files',
        'hash', 'session', 'translation.loader', 'translator', 'url', 'validation.presence',
        'validator', 'view.engine.resolver', 'view.finder',
    ];

    /** Lists of the container's, by what they hold: one callback, or callbacks by service. */
    private const CALLBACKS = [
        'beforeResolvingCallbacks', 'extenders', 'reboundCallbacks', 'resolvingCallbacks',
        'afterResolvingCallbacks',
    ];

    private const GLOBAL_CALLBACKS = [
        'globalBeforeResolvingCallbacks', 'globalResolvingCallbacks',
        'globalAfterResolvingCallbacks',
    ];

    /** The most that a line of the log names. */
    private const NAMED = 10;

    /** @var array<string, string> why each request has to do it, by what was left out */
    private array $leftOut = [];

    private int $services = 0;

    private int $models = 0;

    private function __construct(private readonly Application $app)
    {
    }

    public static function apply(Application $app): void
    {
        $begun = hrtime(true);
        $priming = new self($app);
        $priming->create();
        $priming->log((hrtime(true) - $begun) / 1e6);
    }

    private function create(): void
    {
        foreach (self::GLOBAL_CALLBACKS as $list) {
            if (!self::areLaravels(self::read($this->app, $list))) {
                $this->leftOut['all services'] = 'the application or a package changes each';

                return;
            }
        }
        foreach (self::SERVICES as $name) {
            try {
                if (!$this->app->bound($name)) {
                    continue;
                }
                if (!self::isLaravels($this->app, $name)) {
                    $this->leftOut["service $name"] = 'the application or a package changes it';
                    continue;
                }
                $this->app->make($name);
                ++$this->services;
            } catch (\Throwable $e) {
                // A missing configuration fails where a request needs it.
                $this->leftOut["service $name"] = $e::class.': '.$e->getMessage();
            }
        }
        if (class_exists(Pluralizer::class, false)) {
            // Its rules are hundreds of objects, and each model needs them for its table's name.
            Pluralizer::plural('name');
        }
        if (class_exists(Model::class, false)) {
            foreach (get_declared_classes() as $class) {
                if (is_subclass_of($class, Model::class)) {
                    $this->prime(new \ReflectionClass($class));
                }
            }
        }
    }

    /** Says what was created, and what each request has to create. */
    private function log(float $milliseconds): void
    {
        // Surus reads metrics from this sentence (src/observe/boot_metrics.rs).
        $lines = [\sprintf(
            '%d services and %d models created ahead in %d ms',
            $this->services,
            $this->models,
            $milliseconds
        )];
        if ($this->leftOut) {
            $named = [];
            foreach (\array_slice($this->leftOut, 0, self::NAMED, true) as $what => $why) {
                $named[] = "$what ($why)";
            }
            $more = \count($this->leftOut) - \count($named);
            $lines[] = 'left to each request: '.implode(', ', $named)
                .($more > 0 ? " and $more more" : '');
        }
        Warmup::report($lines);
    }

    /** Whether only code of Laravel's creates a service. */
    private static function isLaravels(Application $app, string $name): bool
    {
        $provider = $app->getDeferredServices()[$name] ?? null;
        if (null !== $provider) {
            if (!\is_string($provider) || !self::isOfLaravel($provider)) {
                return false;
            }
            $app->loadDeferredProvider($name);
        }
        if (!self::areLaravels([$app->getBindings()[$name]['concrete'] ?? null])) {
            return false;
        }
        $classes = self::read($app, 'abstractAliases')[$name] ?? [];
        foreach (self::CALLBACKS as $list) {
            foreach (self::read($app, $list) as $of => $callbacks) {
                $concerns = $of === $name || array_filter(
                    $classes,
                    static fn (string $class) => is_a($class, $of, true)
                );
                if ($concerns && !self::areLaravels($callbacks)) {
                    return false;
                }
            }
        }

        return true;
    }

    /** @param array<mixed> $callbacks */
    private static function areLaravels(array $callbacks): bool
    {
        foreach ($callbacks as $callback) {
            $scope = $callback instanceof \Closure
                ? (new \ReflectionFunction($callback))->getClosureScopeClass()
                : null;
            if (!$scope || !self::isOfLaravel($scope->name)) {
                return false;
            }
        }

        return true;
    }

    private static function isOfLaravel(string $class): bool
    {
        return str_starts_with($class, 'Illuminate\\');
    }

    /** @return array<mixed> */
    private static function read(Application $app, string $property): array
    {
        return \Closure::bind(
            static fn (Container $app) => $app->$property ?? [],
            null,
            Container::class
        )($app);
    }

    /** Finds the accessors of a model, and boots its class. */
    private function prime(\ReflectionClass $class): void
    {
        if (!$class->isInstantiable()) {
            return;
        }
        $model = "model $class->name";
        if (self::hasOwn($class, self::findsAccessors(...))) {
            $this->leftOut[$model] = 'it has methods that return attributes';

            return;
        }
        try {
            $takesObjects = self::cachesByObject($class);
            if ($takesObjects) {
                // Without its constructor, which boots the class.
                $class->name::cacheMutatedAttributes($class->newInstanceWithoutConstructor());
            }
            $events = $class->name::getEventDispatcher();
            $isHeard = $events?->hasListeners("eloquent.booting: $class->name")
                || $events?->hasListeners("eloquent.booted: $class->name");
            if (
                !$isHeard
                    && !self::hasOwnAttributes($class)
                    && !self::hasOwn($class, self::boots($class))
            ) {
                $class->newInstance();
                if (!$takesObjects) {
                    $class->name::cacheMutatedAttributes($class->name);
                }
                ++$this->models;
            } else {
                $this->leftOut[$model] = 'code of the application or of a package boots it, too';
            }
        } catch (\Throwable $e) {
            // A request that needs it gets the exception.
            $this->leftOut[$model] = $e::class.': '.$e->getMessage();
        }
    }

    /**
     * Whether Eloquent finds the accessors of a given object. Laravel 8 takes the class, and
     * creates an object by its constructor.
     */
    private static function cachesByObject(\ReflectionClass $class): bool
    {
        $parameters = $class->getMethod('cacheMutatedAttributes')->getParameters();

        return 'class' !== $parameters[0]->name;
    }

    /**
     * Whether a method that the application has written has a property.
     *
     * @param \Closure(\ReflectionMethod): bool $is
     */
    private static function hasOwn(\ReflectionClass $class, \Closure $is): bool
    {
        // Of Illuminate, which has a package for each of its directories, or one for all.
        $laravel = \dirname((string) (new \ReflectionClass(Model::class))->getFileName(), 3).'/';
        foreach ($class->getMethods() as $method) {
            // The methods of traits are those of the class, but in another file.
            if (!str_starts_with((string) $method->getFileName(), $laravel) && $is($method)) {
                return true;
            }
        }

        return false;
    }

    /** Whether the class or one that it is made of has attributes, which may name code to run. */
    private static function hasOwnAttributes(\ReflectionClass $class): bool
    {
        $parts = class_parents($class->name) + class_uses_recursive($class->name);
        foreach ([$class->name, ...array_values($parts)] as $name) {
            if (!self::isOfLaravel($name) && (new \ReflectionClass($name))->getAttributes()) {
                return true;
            }
        }

        return false;
    }

    /** Whether Eloquent calls the method to find out what accessors there are. */
    private static function findsAccessors(\ReflectionMethod $method): bool
    {
        $type = $method->getReturnType();

        return $type instanceof \ReflectionNamedType && Attribute::class === $type->getName();
    }

    /** @return \Closure(\ReflectionMethod): bool whether Eloquent calls it to boot the class */
    private static function boots(\ReflectionClass $class): \Closure
    {
        $names = ['__construct', 'boot', 'booted', 'booting'];
        foreach (class_uses_recursive($class->name) as $trait) {
            array_push($names, 'boot'.class_basename($trait), 'initialize'.class_basename($trait));
        }

        return static fn (\ReflectionMethod $method) => \in_array($method->name, $names, true)
            || $method->getAttributes();
    }
}
