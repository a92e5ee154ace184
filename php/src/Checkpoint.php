<?php

namespace Surus;

/**
 * Saves the properties of objects and static properties and restores them later, so that a
 * long-running application keeps nothing of a request. Not covered: static variables of functions,
 * variables captured by closures, and the internal state of extensions' objects.
 */
final class Checkpoint
{
    /**
     * @var list<array{object, array<string, mixed>, list<string>}> objects, their properties, kept
     * ones
     */
    private array $objects = [];

    /** @var list<LazyObject> objects that are not initialized */
    private array $lazy = [];

    /** @var array<string, true> what restore() has told of lazy objects */
    private array $told = [];

    /** @var array<int, object> by object id; held so that PHP does not reuse an id */
    private array $seen = [];

    /**
     * @var list<array{\Closure, array<string, mixed>}> restorers of static properties, and the
     * values
     */
    private array $statics = [];

    /** @var list<\ReflectionProperty> static properties that PHP cannot make uninitialized again */
    private array $uninitialized = [];

    /** @var array<string, int> saved classes by name; a later one is not always the last */
    private array $classes = [];

    /** @var array<class-string, \Closure> writers of the properties that a class declares */
    private static array $writers = [];

    /**
     * @param \Closure(\ReflectionClass<object>): bool $hasStatics selects the classes with static
     * properties to restore
     * @param array<class-string, list<string>>        $keeps      properties that keep what
     * requests change
     * @param list<class-string>                       $leaves     objects that keep what requests
     * change, with all that is only reached through them
     * @param ?\Closure(\ReflectionClass<object>): bool $tells    selects the classes of which
     * restore() tells what it could not restore; by default all
     */
    public function __construct(
        private readonly \Closure $hasStatics,
        private readonly array $keeps = [],
        private readonly array $leaves = [],
        private readonly ?\Closure $tells = null,
    ) {
    }

    /** Saves an object and all that is reachable from it. */
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
                $value = match (true) {
                    $value instanceof \Closure => self::captured($value),
                    // Looking at its properties would initialize it.
                    LazyObject::is($value) => ($this->lazy[] = new LazyObject($value))->reached(),
                    default => $this->noteOne($value),
                };
            }
            foreach ($value as $element) {
                if (\is_object($element) || \is_array($element)) {
                    $values[] = $element;
                }
            }
        }
    }

    /** Saves the static properties of all classes, and what is reachable from them. */
    public function noteStatics(): void
    {
        $this->classes = array_flip(get_declared_classes());
        foreach (self::classes($this->classes) as $class) {
            $values = $this->noteClass(
                $class,
                static fn (\ReflectionProperty $property) => $property->isInitialized()
                    ? [$property->getValue()]
                    : [],
            );
            $this->follow([$values]);
        }
    }

    /**
     * Restores everything but properties that PHP does not let go of once they are initialized:
     * read-only ones, and static ones with a type and no default. Lazy objects are made lazy again
     * where PHP can do that.
     *
     * @return list<string> such properties, each the first time
     */
    public function restore(): array
    {
        $left = [];
        foreach ($this->lazy as $lazy) {
            foreach ($lazy->restore() as $kept) {
                if (!isset($this->told[$kept])) {
                    $this->told[$kept] = true;
                    $left[] = $kept;
                }
            }
        }
        foreach ($this->objects as $at => [$object, $then, $kept]) {
            if (LazyObject::is($object)) {
                // The request has made it lazy. Writing a property would call the initializer.
                (new \ReflectionClass($object))->markLazyObjectAsInitialized($object);
            }
            if (get_mangled_object_vars($object) !== $then) {
                foreach (
                    self::putBack($object, $then, $kept) as $name => [$class, $short, $value]
                ) {
                    $this->objects[$at][1][$name] = $value;
                    if ($this->tellsOf(new \ReflectionClass($class))) {
                        $left[] = "$class->$short";
                    }
                }
            }
        }
        $declared = get_declared_classes();
        // A class cannot be removed, so as many are the same ones.
        if (\count($declared) !== \count($this->classes)) {
            $classes = array_flip($declared);
            foreach (self::classes(array_diff_key($classes, $this->classes)) as $class) {
                // The class was loaded by the request, so it had its defaults at the checkpoint.
                $this->noteClass(
                    $class,
                    static fn (\ReflectionProperty $property) => $property->hasDefaultValue()
                        ? [$property->getDefaultValue()]
                        : [],
                );
            }
            $this->classes = $classes;
        }
        foreach ($this->statics as [$putBack, $then]) {
            $putBack($then);
        }
        foreach ($this->uninitialized as $at => $property) {
            if ($property->isInitialized()) {
                unset($this->uninitialized[$at]);
                $left[] = "$property->class::\$$property->name";
            }
        }

        return $left;
    }

    /**
     * The classes of these names. Leaves out aliases, which PHP lists by names of their own.
     *
     * @param array<string, int> $names
     *
     * @return iterable<\ReflectionClass<object>>
     */
    public static function classes(array $names): iterable
    {
        foreach ($names as $name => $_) {
            $class = new \ReflectionClass($name);
            if ($class->name === $name) {
                yield $class;
            }
        }
    }

    /** Whether this object is restored. */
    public function has(object $object): bool
    {
        return ($this->seen[spl_object_id($object)] ?? null) === $object;
    }

    private function tellsOf(\ReflectionClass $class): bool
    {
        return !$this->tells || ($this->tells)($class);
    }

    private function leaves(object $object): bool
    {
        // The values of an enumeration do not change.
        if ($object instanceof \UnitEnum || $object instanceof \Throwable) {
            return true;
        }
        foreach ($this->leaves as $class) {
            if ($object instanceof $class) {
                return true;
            }
        }

        // The runner runs during the restore.
        return str_starts_with($object::class, 'Surus\\');
    }

    /** @return array<string, mixed> the properties */
    private function noteOne(object $object): array
    {
        $properties = [];
        foreach (get_mangled_object_vars($object) as $name => $value) {
            $properties[$name] = $value; // a copy, never a reference
        }
        $kept = [];
        foreach ($this->keeps as $class => $names) {
            if ($object instanceof $class) {
                array_push($kept, ...$names);
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
            // Inherited properties are saved with the parent class.
            if ($property->class === $class->name) {
                $found = $value($property);
                if ($found) {
                    $values[$property->name] = $found[0];
                } elseif ($this->tellsOf($class)) {
                    $this->uninitialized[] = $property;
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
     *
     * @return array<string, array{class-string, string, mixed}> read-only ones that stay: class,
     * name, value
     */
    private static function putBack(object $object, array $then, array $kept): array
    {
        $left = [];
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
                // A read-only property that the request has initialized.
                if (\array_key_exists($name, $now)) {
                    $left[$name] = [$class, $short, $now[$name]];
                }
            }
        }

        return $left;
    }

    /** @return list<mixed> objects and variables of a closure */
    private static function captured(\Closure $closure): array
    {
        $function = new \ReflectionFunction($closure);

        return [$function->getClosureThis(), $function->getClosureUsedVariables()];
    }
}
