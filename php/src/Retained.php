<?php

namespace Surus;

/**
 * Finds what keeps objects of a request (the request, its session, its user) after the request has
 * ended, and reports each place once. Watching costs a weak reference. The search runs only if an
 * object has outlived its request, and then for the 1st, 2nd, 4th, 8th … time. Static properties
 * and static variables are compared with it the first 20 times, too, because that is cheap.
 */
final class Retained
{
    /** How many objects a search visits. */
    private const MOST = 200_000;

    /** How many times statics are compared, however often objects outlive their requests. */
    private const FIRST = 20;

    /** How many objects wait to be compared with statics. */
    private const UNSEARCHED = 64;

    /** @var list<\WeakReference<object>> */
    private array $watched = [];

    /** @var list<\WeakReference<object>> objects that statics have not been compared with */
    private array $unsearched = [];

    /** @var array<string, true> */
    private array $named = [];

    private int $suspicions = 0;
    private readonly Statics $statics;

    /**
     * @param \Closure(): iterable<string, mixed>      $roots         roots of the search, besides
     * statics
     * @param \Closure(\ReflectionClass<object>): bool $isApplication whether a class is the
     * application's and not a library's
     * @param \Closure(string): void                   $log
     * @param list<string>                             $harmless      namespaces of classes that
     * replace what they keep before they use it
     */
    public function __construct(
        private readonly \Closure $roots,
        private readonly \Closure $isApplication,
        private readonly \Closure $log,
        private readonly array $harmless = [],
    ) {
        $this->statics = new Statics($isApplication);
    }

    public function watch(?object $object): void
    {
        if ($object) {
            $this->watched[] = \WeakReference::create($object);
        }
    }

    /** Call this after a request, when no caller holds its objects any more. */
    public function check(): void
    {
        if (!self::alive($this->watched)) {
            $this->watched = [];

            return;
        }
        $times = ++$this->suspicions;
        $isPowerOfTwo = 0 === ($times & ($times - 1));
        // A static variable often keeps only the first object that it gets, so none is skipped.
        $this->unsearched = array_values(array_filter(
            [...$this->unsearched, ...$this->watched],
            static fn (\WeakReference $one) => null !== $one->get(),
        ));
        if ($times <= self::FIRST || $isPowerOfTwo) {
            $this->nameStatics();
            $this->unsearched = [];
        }
        $this->unsearched = \array_slice($this->unsearched, -self::UNSEARCHED);
        if ($isPowerOfTwo) {
            // Unreachable cycles hold objects, too, until they are collected.
            gc_collect_cycles();
            foreach (self::alive($this->watched) as $object) {
                $this->name($object);
            }
        }
        $this->watched = [];
    }

    /**
     * The path to an object: "App\Basket->request". Null if none was found, '' if only harmless
     * classes reach the object. $onlyRoots: searches only the application's classes, and no
     * statics.
     */
    public function holder(object $wanted, bool $onlyRoots = false): ?string
    {
        $queue = new \SplQueue();
        // The roots come first, so that a class holding the container is not blamed for what is in
        // it.
        foreach (($this->roots)() as $name => $value) {
            $queue->enqueue([$value, $name, null]);
        }
        foreach ($onlyRoots ? [] : $this->statics->values() as $name => $value) {
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
            if (
                !\is_object($value)
                    || isset($seen[spl_object_id($value)])
                    || $value instanceof \WeakReference
            ) {
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

    /** Names all statics that hold objects, also several that hold the same object. */
    private function nameStatics(): void
    {
        $holders = $this->statics->holders(self::alive($this->unsearched));
        foreach ($holders as $holder => $object) {
            $this->report($holder, $object);
        }
    }

    private function name(object $object): void
    {
        $holder = $this->holder($object) ?? 'something unknown (an extension, a running generator)';
        if ('' !== $holder) {
            $this->report($holder, $object);
        }
    }

    private function report(string $holder, object $object): void
    {
        if (isset($this->named[$holder])) {
            return;
        }
        $this->named[$holder] = true;
        ($this->log)(\sprintf(
            'surus: %s keeps the %s of a request that has ended; on the engine "%s" the next '
            .'visitor may get it. %s, or use the engine "rewind", which restores all memory',
            ltrim(str_replace('(library) ', '', $holder), '\\'),
            $object::class,
            Engine::name() ?? 'worker',
            str_contains($holder, ' (static variable $')
                ? 'Only its function can clear it: fetch the object in each call'
                : 'Clear it when a request ends',
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

    /**
     * @return iterable<array{mixed, string, ?\ReflectionClass<object>}> an object's parts: value,
     * place, class
     */
    private function parts(object $object): iterable
    {
        if ($object instanceof \Closure) {
            $function = new \ReflectionFunction($object);
            $at = \sprintf(
                'a closure in %s:%d',
                $function->getFileName(),
                $function->getStartLine()
            );
            yield [$function->getClosureThis(), $at, null];
            yield [$this->statics->variablesOf($function), $at, $function->getClosureScopeClass()];

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

    /**
     * @param list<\WeakReference<object>> $references
     *
     * @return list<object>
     */
    private static function alive(array $references): array
    {
        return array_values(
            array_filter(array_map(static fn (\WeakReference $one) => $one->get(), $references))
        );
    }
}
