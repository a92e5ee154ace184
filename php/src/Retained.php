<?php

namespace Surus;

/**
 * Finds what keeps objects of a request (the request, its session, its user) after that request has
 * ended, and names each place once. Watching costs a weak reference; the search runs only where an
 * object has outlived its request, and then for the 1st, 2nd, 4th, 8th … time.
 */
final class Retained
{
    private const MOST = 200_000;

    /** @var list<\WeakReference<object>> */
    private array $watched = [];

    /** @var array<string, true> */
    private array $named = [];

    private int $suspicions = 0;

    /**
     * @param \Closure(): iterable<string, mixed>      $roots         where the search begins, besides statics
     * @param \Closure(\ReflectionClass<object>): bool $isApplication is this a class of the application, and
     *                                                                not of a library?
     * @param \Closure(string): void                   $log
     * @param list<string>                             $harmless      namespaces whose classes replace what they keep
     *                                                                before they use it
     */
    public function __construct(
        private readonly \Closure $roots,
        private readonly \Closure $isApplication,
        private readonly \Closure $log,
        private readonly array $harmless = [],
    ) {
    }

    public function watch(?object $object): void
    {
        if ($object) {
            $this->watched[] = \WeakReference::create($object);
        }
    }

    /** To be called where a request has ended, and no caller holds its objects. */
    public function check(): void
    {
        if (!self::alive($this->watched)) {
            $this->watched = [];

            return;
        }
        $times = ++$this->suspicions;
        if (0 === ($times & ($times - 1))) {
            // Cycles of garbage hold objects, too, and nobody reaches them.
            gc_collect_cycles();
            foreach (self::alive($this->watched) as $object) {
                $this->name($object);
            }
        }
        $this->watched = [];
    }

    /**
     * What reaches an object: "App\Basket->request"; null where it was not found, '' where only
     * what is harmless reaches it. $onlyRoots: the application's classes alone, and without
     * statics.
     */
    public function holder(object $wanted, bool $onlyRoots = false): ?string
    {
        $queue = new \SplQueue();
        // First, so that what is in the container is not blamed on a class that holds the
        // container.
        foreach (($this->roots)() as $name => $value) {
            $queue->enqueue([$value, $name, null]);
        }
        foreach ($onlyRoots ? [] : $this->statics() as $name => $value) {
            $queue->enqueue([$value, $name, str_contains($name, '(library) ') ? null : $name]);
        }
        $seen = [spl_object_id($this) => $this, spl_object_id($queue) => $queue];
        $found = null;
        while (!$queue->isEmpty() && \count($seen) < self::MOST) {
            [$value, $place, $blamed] = $queue->dequeue();
            if ($value === $wanted) {
                if (false === $blamed) {
                    $found = '';
                } elseif (null !== $blamed || !$onlyRoots) {
                    return $blamed ?? $place;
                }
                continue;
            }
            if (\is_array($value)) {
                foreach ($value as $element) {
                    if (\is_object($element) || \is_array($element)) {
                        $queue->enqueue([$element, $place, $blamed]);
                    }
                }
                continue;
            }
            if (!\is_object($value) || isset($seen[spl_object_id($value)]) || $value instanceof \WeakReference) {
                continue;
            }
            $seen[spl_object_id($value)] = $value;
            foreach ($this->parts($value) as [$element, $at, $class]) {
                if (\is_object($element) || \is_array($element)) {
                    $blames = match (true) {
                        null === $class => $blamed,
                        ($this->isApplication)($class) => $at,
                        $this->isHarmless($class->name) => $blamed ?? false,
                        default => false === $blamed ? null : $blamed,
                    };
                    $queue->enqueue([$element, $at, $blames]);
                }
            }
        }

        return $found;
    }

    private function name(object $object): void
    {
        $holder = $this->holder($object) ?? 'something that was not found (an extension, a running generator)';
        if ('' === $holder || isset($this->named[$holder])) {
            return;
        }
        $this->named[$holder] = true;
        ($this->log)(\sprintf(
            'surus: %s keeps the %s of a request that has ended; on the engine "%s" the next visitor may be '
            .'answered with it. Clear it when a request ends, or use the engine "rewind", which restores all memory',
            ltrim(str_replace('(library) ', '', $holder), '\\'),
            $object::class,
            Engine::name() ?? 'worker',
        ));
    }

    private function isHarmless(string $class): bool
    {
        foreach ($this->harmless as $namespace) {
            if (str_starts_with($class, $namespace)) {
                return true;
            }
        }

        return false;
    }

    /** @return iterable<array{mixed, string, ?\ReflectionClass<object>}> what an object holds, where, in which class */
    private function parts(object $object): iterable
    {
        if ($object instanceof \Closure) {
            $function = new \ReflectionFunction($object);
            $at = \sprintf('a closure in %s:%d', $function->getFileName(), $function->getStartLine());
            yield [$function->getClosureThis(), $at, null];
            yield [$function->getStaticVariables(), $at, $function->getClosureScopeClass()];

            return;
        }
        $class = new \ReflectionClass($object);
        foreach (get_mangled_object_vars($object) as $name => $value) {
            $name = (string) $name;
            $short = "\0" === ($name[0] ?? '') ? substr(strrchr($name, "\0"), 1) : $name;
            yield [$value, "$class->name->$short", $class];
        }
        if ($object instanceof \SplObjectStorage || $object instanceof \WeakMap) {
            foreach ($object as $key => $value) {
                // A weak map does not keep its keys.
                yield [$value, $class->name, null];
            }
        } elseif ($object instanceof \ArrayObject || $object instanceof \ArrayIterator) {
            yield [$object->getArrayCopy(), $class->name, null];
        }
    }

    /** @return iterable<string, mixed> static properties, and the static variables of the application's functions */
    private function statics(): iterable
    {
        foreach (get_declared_classes() as $name) {
            $class = new \ReflectionClass($name);
            if ($class->isInternal() || str_starts_with($name, 'Surus\\')) {
                continue;
            }
            $applications = ($this->isApplication)($class);
            foreach ($class->getStaticProperties() as $property => $value) {
                yield ($applications ? '' : '(library) ')."$name::\$$property" => $value;
            }
            if ($applications) {
                foreach ($class->getMethods() as $method) {
                    if ($method->class === $name) {
                        yield "$name::$method->name() (a static variable)" => $method->getStaticVariables();
                    }
                }
            }
        }
        foreach (get_defined_functions()['user'] as $name) {
            yield "$name() (a static variable)" => (new \ReflectionFunction($name))->getStaticVariables();
        }
    }

    /**
     * @param list<\WeakReference<object>> $references
     *
     * @return list<object>
     */
    private static function alive(array $references): array
    {
        return array_values(array_filter(array_map(static fn (\WeakReference $one) => $one->get(), $references)));
    }
}
