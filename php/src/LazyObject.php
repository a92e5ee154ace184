<?php

namespace Surus;

/**
 * Saves a lazy object of PHP 8.4 that is not initialized, and makes it lazy again after a request
 * has initialized it. Otherwise it would keep what its initializer took from that request.
 */
final class LazyObject
{
    /** @var \ReflectionClass<object> */
    private readonly \ReflectionClass $class;

    /** @var callable */
    private readonly mixed $initializer;

    /** @var array<string, mixed> properties that are set although the object is not initialized */
    private readonly array $set;

    public function __construct(private readonly object $object)
    {
        $this->class = new \ReflectionClass($object);
        $this->initializer = $this->class->getLazyInitializer($object);
        $set = [];
        // This does not initialize it.
        foreach (get_mangled_object_vars($object) as $name => $value) {
            $set[$name] = $value; // a copy, never a reference
        }
        $this->set = $set;
    }

    /** Whether the object is lazy and not initialized. */
    public static function is(object $object): bool
    {
        return \PHP_VERSION_ID >= 80400
            && (new \ReflectionClass($object))->isUninitializedLazyObject($object);
    }

    /** @return list<mixed> what the object reaches */
    public function reached(): array
    {
        return [$this->initializer, $this->set];
    }

    /**
     * Makes the object lazy again.
     *
     * @return list<string> properties that keep what the request has set
     */
    public function restore(): array
    {
        if ($this->class->isUninitializedLazyObject($this->object)) {
            if ($this->class->getLazyInitializer($this->object) !== $this->initializer) {
                // The request has made it lazy in another way. Only an initialized object says
                // whether it is a proxy.
                return ["{$this->class->name} (its initializer)"];
            }

            return $this->putBack();
        }
        // A proxy has another object; PHP returns it without calling the initializer again.
        $isProxy = $this->class->initializeLazyObject($this->object) !== $this->object;
        if (!$isProxy && ($kept = $this->readOnly())) {
            return $kept;
        }
        try {
            // The object lives on, so its destructor must not run.
            $this->class->{$isProxy ? 'resetAsLazyProxy' : 'resetAsLazyGhost'}(
                $this->object,
                $this->initializer,
                \ReflectionClass::SKIP_DESTRUCTOR,
            );
        } catch (\Error | \ReflectionException) {
            return [$this->class->name];
        }

        return $this->putBack();
    }

    /** @return list<string> properties that stay */
    private function putBack(): array
    {
        $kept = [];
        $now = get_mangled_object_vars($this->object);
        foreach ($this->set + $now as $name => $_) {
            $property = $this->property((string) $name);
            if (!\array_key_exists($name, $this->set)) {
                // It cannot be made lazy without the others.
                $kept[] = "$property->class->$property->name";
            } elseif (!\array_key_exists($name, $now) || $now[$name] !== $this->set[$name]) {
                try {
                    $property->setRawValueWithoutLazyInitialization(
                        $this->object,
                        $this->set[$name]
                    );
                } catch (\Error | \ReflectionException) {
                    $kept[] = "$property->class->$property->name";
                }
            }
        }

        return $kept;
    }

    /**
     * PHP does not make read-only properties of a final class lazy again, so that the initializer
     * would fail.
     *
     * @return list<string>
     */
    private function readOnly(): array
    {
        if (!$this->class->isFinal()) {
            return [];
        }
        $kept = [];
        foreach (
            array_diff_key(get_mangled_object_vars($this->object), $this->set) as $name => $_
        ) {
            $property = $this->property((string) $name);
            if ($property?->isReadOnly()) {
                $kept[] = "$property->class->$property->name";
            }
        }

        return $kept;
    }

    /** The property with this name of get_mangled_object_vars(); null if no class declares it. */
    private function property(string $name): ?\ReflectionProperty
    {
        // Private and protected properties are named "\0class\0name" and "\0*\0name".
        [, $class, $short] = str_starts_with($name, "\0")
            ? explode("\0", $name, 3)
            : ['', '*', $name];
        $class = '*' === $class ? $this->class->name : $class;

        return property_exists($class, $short) ? new \ReflectionProperty($class, $short) : null;
    }
}
