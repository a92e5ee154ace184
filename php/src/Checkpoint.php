<?php

namespace Surus;

/**
 * Notes what objects and static properties hold and puts it back later, so that an application that
 * goes on living keeps nothing of a request. Out of reach: static variables of functions, variables
 * that closures have captured, and what objects of PHP's extensions hold.
 */
final class Checkpoint
{
    /** @var list<array{object, array<string, mixed>, list<string>}> objects, their properties, kept ones */
    private array $objects = [];

    /** @var array<int, array{object, array<string, mixed>, list<string>}> the same, by object id */
    private array $onDemand = [];

    /** @var array<int, true> object ids of $onDemand that are to be put back */
    private array $touched = [];

    /** @var array<int, object> by object id; they are held, so that no id is given to another object */
    private array $seen = [];

    /** @var list<array{\Closure, array<string, mixed>}> what puts static properties back, and their values */
    private array $statics = [];

    private int $classes = 0;

    /** @var array<class-string, \Closure> what writes the properties that a class declares */
    private static array $writers = [];

    /**
     * @param \Closure(\ReflectionClass<object>): bool $hasStatics says whose static properties are put back
     * @param array<class-string, list<string>>        $keeps      properties that requests may change for good
     * @param list<class-string>                       $leaves     objects that requests may change for good, with
     *                                                             all that is only reached through them
     * @param list<class-string>                       $onDemandClasses objects that are put back where touch() has
     *                                                             named them: for what is many and seldom changes
     */
    public function __construct(
        private readonly \Closure $hasStatics,
        private readonly array $keeps = [],
        private readonly array $leaves = [],
        private readonly array $onDemandClasses = [],
    ) {
    }

    /** Notes an object and all that is reached from it. */
    public function note(object $root): void
    {
        $this->follow([$root]);
    }

    /** @param list<mixed> $values */
    private function follow(array $values): void
    {
        while ($values) {
            $value = array_pop($values);
            if (\is_object($value)) {
                if (isset($this->seen[spl_object_id($value)]) || $this->leaves($value)) {
                    continue;
                }
                $this->seen[spl_object_id($value)] = $value;
                $value = $value instanceof \Closure ? self::captured($value) : $this->noteOne($value);
            }
            foreach ($value as $element) {
                if (\is_object($element) || \is_array($element)) {
                    $values[] = $element;
                }
            }
        }
    }

    /** Notes the static properties of all classes, and what is reached from them. */
    public function noteStatics(): void
    {
        $classes = get_declared_classes();
        $this->classes = \count($classes);
        foreach ($classes as $class) {
            $values = $this->noteClass(
                new \ReflectionClass($class),
                static fn (\ReflectionProperty $property) => $property->isInitialized()
                    ? [$property->getValue()]
                    : [],
            );
            $this->follow([$values]);
        }
    }

    /** An object of an on-demand class has been used, and may have changed. */
    public function touch(object $object): void
    {
        $this->touched[spl_object_id($object)] = true;
    }

    /** Puts everything back. */
    public function restore(): void
    {
        foreach ($this->objects as [$object, $then, $kept]) {
            if (get_mangled_object_vars($object) !== $then) {
                self::putBack($object, $then, $kept);
            }
        }
        foreach (array_intersect_key($this->onDemand, $this->touched) as [$object, $then, $kept]) {
            self::putBack($object, $then, $kept);
        }
        $this->touched = [];
        $classes = get_declared_classes();
        foreach (\array_slice($classes, $this->classes) as $class) {
            // Loaded by the request: at the checkpoint it would have had its defaults.
            $this->noteClass(
                new \ReflectionClass($class),
                static fn (\ReflectionProperty $property) => $property->hasDefaultValue()
                    ? [$property->getDefaultValue()]
                    : [],
            );
        }
        $this->classes = \count($classes);
        foreach ($this->statics as [$putBack, $then]) {
            $putBack($then);
        }
    }

    /** Is this an object that is put back? */
    public function has(object $object): bool
    {
        return ($this->seen[spl_object_id($object)] ?? null) === $object;
    }

    private function leaves(object $object): bool
    {
        // The values of an enumeration do not change, and a lazy object would be initialized by
        // being looked at.
        if ($object instanceof \UnitEnum || $object instanceof \Throwable || self::isLazy($object)) {
            return true;
        }
        foreach ($this->leaves as $class) {
            if ($object instanceof $class) {
                return true;
            }
        }

        // The runner is at work while it puts things back.
        return str_starts_with($object::class, 'Surus\\');
    }

    /** @return array<string, mixed> the properties */
    private function noteOne(object $object): array
    {
        $properties = [];
        foreach (get_mangled_object_vars($object) as $name => $value) {
            $properties[$name] = $value; // a copy, and never a reference
        }
        $kept = [];
        foreach ($this->keeps as $class => $names) {
            if ($object instanceof $class) {
                array_push($kept, ...$names);
            }
        }
        foreach ($this->onDemandClasses as $class) {
            if ($object instanceof $class) {
                $this->onDemand[spl_object_id($object)] = [$object, $properties, $kept];

                return $properties;
            }
        }
        $this->objects[] = [$object, $properties, $kept];

        return $properties;
    }

    /**
     * @param \Closure(\ReflectionProperty): array{0?: mixed} $value
     *
     * @return array<string, mixed>
     */
    private function noteClass(\ReflectionClass $class, \Closure $value): array
    {
        if ($class->isInternal() || $class->isEnum() || !($this->hasStatics)($class)) {
            return [];
        }
        $values = [];
        foreach ($class->getProperties(\ReflectionProperty::IS_STATIC) as $property) {
            // What is inherited belongs to the parent, where it is noted.
            if ($property->class === $class->name) {
                foreach ($value($property) as $found) {
                    $values[$property->name] = $found;
                }
            }
        }
        if ($values) {
            $putBack = static function (array $then): void {
                foreach ($then as $name => $value) {
                    if (self::$$name !== $value) {
                        self::$$name = $value;
                    }
                }
            };
            $this->statics[] = [\Closure::bind($putBack, null, $class->name), $values];
        }

        return $values;
    }

    /**
     * @param array<string, mixed> $then
     * @param list<string>         $kept
     */
    private static function putBack(object $object, array $then, array $kept): void
    {
        $now = get_mangled_object_vars($object);
        foreach ($then + $now as $name => $_) {
            $had = \array_key_exists($name, $then);
            if ($had && \array_key_exists($name, $now) && $now[$name] === $then[$name]) {
                continue;
            }
            // Private and protected properties are named "\0class\0name" and "\0*\0name".
            [, $class, $short] = str_starts_with((string) $name, "\0")
                ? explode("\0", $name, 3)
                : ['', '*', (string) $name];
            if (\in_array($short, $kept, true)) {
                continue;
            }
            $class = '*' === $class ? $object::class : $class;
            self::$writers[$class] ??= \Closure::bind(
                static function (object $object, string $name, bool $had, mixed $value): void {
                    if ($had) {
                        $object->$name = $value;
                    } else {
                        unset($object->$name);
                    }
                },
                null,
                (new \ReflectionClass($class))->isInternal() ? self::class : $class,
            );
            try {
                (self::$writers[$class])($object, $short, $had, $then[$name] ?? null);
            } catch (\Error) {
                // Read-only, and initialized since.
            }
        }
    }

    /** @return list<mixed> what a closure leads to */
    private static function captured(\Closure $closure): array
    {
        $function = new \ReflectionFunction($closure);

        return [$function->getClosureThis(), $function->getClosureUsedVariables()];
    }

    private static function isLazy(object $object): bool
    {
        return \PHP_VERSION_ID >= 80400 && (new \ReflectionClass($object))->isUninitializedLazyObject($object);
    }
}
