<?php

namespace Surus;

/**
 * Reads static properties and static variables, and finds those that hold given objects. Runs no
 * code of the application: no autoloader, no constructor, no error handler.
 */
final class Statics
{
    /** Bounds of the search in arrays: levels, and elements of each place. */
    private const DEPTH = 4;
    private const ELEMENTS = 1_000;

    /** @var list<array{string, \ReflectionProperty, bool}> place, property, is the application's */
    private array $properties = [];

    /** @var array<string, \ReflectionFunctionAbstract> functions with static variables, by place */
    private array $functions = [];

    /** @var array<string, int> declared classes by name; a later one is not always the last */
    private array $classesSeen = [];

    /** @var array<string, int> */
    private array $functionsSeen = [];

    /** @var array<string, list<int>> by file, lines where static variables get new objects */
    private array $constructions = [];

    /**
     * @param \Closure(\ReflectionClass<object>): bool $isApplication whether a class is the
     * application's and not a library's
     */
    public function __construct(private readonly \Closure $isApplication)
    {
    }

    /**
     * @return array<string, mixed> objects and arrays by place: static properties of all classes,
     * static variables of all functions and of the application's methods. "(library) " begins the
     * place of a library's property.
     */
    public function values(): array
    {
        return $this->read(true);
    }

    /**
     * The places that hold one of the objects directly or in an array, except properties of
     * libraries.
     *
     * @param list<object> $objects
     *
     * @return array<string, object> the first such object by place
     */
    public function holders(array $objects): array
    {
        $wanted = [];
        foreach ($objects as $object) {
            $wanted[spl_object_id($object)] = $object;
        }
        $holders = [];
        foreach ($wanted ? $this->read(false) : [] as $place => $value) {
            $elements = self::ELEMENTS;
            if ($object = self::find($value, $wanted, self::DEPTH, $elements)) {
                $holders[$place] = $object;
            }
        }

        return $holders;
    }

    /** @return array<string, mixed> what a closure has captured, and its static variables */
    public function variablesOf(\ReflectionFunction $closure): array
    {
        return self::withoutApplication(
            fn () => ($this->constructs($closure) ? null : self::variables($closure))
                ?? $closure->getClosureUsedVariables()
        );
    }

    /** @return array<string, mixed> */
    private function read(bool $ofLibraries): array
    {
        $this->index();

        return self::withoutApplication(function () use ($ofLibraries): array {
            $values = [];
            foreach ($this->properties as [$place, $property, $isApplication]) {
                if ($isApplication || $ofLibraries) {
                    $values[($isApplication ? '' : '(library) ').$place] = self::value($property);
                }
            }
            foreach ($this->functions as $place => $function) {
                foreach (self::variables($function) ?? [] as $name => $value) {
                    $values["$place (static variable \$$name)"] = $value;
                }
            }

            return array_filter($values, static fn ($value) => \is_object($value)
                || \is_array($value));
        });
    }

    /** Adds the classes and functions that have been declared since the last call. */
    private function index(): void
    {
        $functions = [];
        $classes = array_flip(get_declared_classes());
        foreach (Checkpoint::classes(array_diff_key($classes, $this->classesSeen)) as $class) {
            if (!$class->isInternal() && !str_starts_with($class->name, 'Surus\\')) {
                $functions += $this->indexClass($class);
            }
        }
        $this->classesSeen = $classes;
        $names = array_flip(get_defined_functions()['user']);
        foreach (array_diff_key($names, $this->functionsSeen) as $name => $_) {
            if (!str_starts_with($name, 'surus\\')) {
                $function = new \ReflectionFunction($name);
                $functions["$function->name()"] = $function;
            }
        }
        $this->functionsSeen = $names;
        $this->functions += self::withoutApplication(fn () => array_filter(
            $functions,
            fn ($function) => !$this->constructs($function) && [] !== self::variables($function),
        ));
    }

    /**
     * @param \ReflectionClass<object> $class
     *
     * @return array<string, \ReflectionMethod> the application's methods by place
     */
    private function indexClass(\ReflectionClass $class): array
    {
        // The name of an anonymous class has a zero byte.
        $name = strtr($class->name, "\0", ' ');
        $isApplication = ($this->isApplication)($class);
        foreach ($class->getProperties(\ReflectionProperty::IS_STATIC) as $property) {
            // Inherited properties belong to the parent class.
            if ($property->class === $class->name) {
                $this->properties[] = ["$name::\$$property->name", $property, $isApplication];
            }
        }
        $methods = [];
        foreach ($isApplication ? $class->getMethods() : [] as $method) {
            if ($method->class === $class->name) {
                $methods["$name::$method->name()"] = $method;
            }
        }

        return $methods;
    }

    /**
     * Whether reading static variables may run a constructor. PHP 8.2 evaluates their initial
     * values when they are read, and a value may begin with `new`.
     */
    private function constructs(\ReflectionFunctionAbstract $function): bool
    {
        if (\PHP_VERSION_ID >= 80300) {
            return false;
        }
        $file = (string) $function->getFileName();
        if (!is_readable($file) || !class_exists(\PhpToken::class, false)) {
            return true;
        }
        foreach ($this->constructions[$file] ??= self::constructions($file) as $line) {
            if ($line >= $function->getStartLine() && $line <= $function->getEndLine()) {
                return true;
            }
        }

        return false;
    }

    /** @return list<int> */
    private static function constructions(string $file): array
    {
        $lines = [];
        $began = null;
        $before = null;
        foreach (\PhpToken::tokenize((string) file_get_contents($file)) as $token) {
            if ($token->isIgnorable()) {
                continue;
            }
            $began = match (true) {
                $token->is(\T_VARIABLE) && \T_STATIC === $before => $token->line,
                $token->is(';') => null,
                default => $began,
            };
            if (null !== $began && $token->is(\T_NEW)) {
                $lines[] = $began;
            }
            $before = $token->id;
        }

        return $lines;
    }

    /** @return ?array<string, mixed> null if an initial value needs a class that is not loaded */
    private static function variables(\ReflectionFunctionAbstract $function): ?array
    {
        try {
            return $function->getStaticVariables();
        } catch (\Throwable) {
            return null;
        }
    }

    private static function value(\ReflectionProperty $property): mixed
    {
        try {
            return $property->isInitialized() ? $property->getValue() : null;
        } catch (\Throwable) {
            // PHP has not evaluated the initial values, so nothing has written the property.
            return null;
        }
    }

    /**
     * Calls a function that evaluates initial values of the application.
     *
     * @param \Closure(): array<mixed> $read
     *
     * @return array<mixed>
     */
    private static function withoutApplication(\Closure $read): array
    {
        $refuse = static fn (string $class) => throw new \Error("$class is not loaded");
        spl_autoload_register($refuse, true, true);
        set_error_handler(static fn (): bool => true);
        try {
            return $read();
        } finally {
            restore_error_handler();
            spl_autoload_unregister($refuse);
        }
    }

    /** @param array<int, object> $wanted by object id */
    private static function find(mixed $value, array $wanted, int $depth, int &$elements): ?object
    {
        if (\is_object($value)) {
            return $wanted[spl_object_id($value)] ?? null;
        }
        foreach (\is_array($value) && $depth > 0 ? $value : [] as $element) {
            if (--$elements < 0) {
                break;
            }
            if ($found = self::find($element, $wanted, $depth - 1, $elements)) {
                return $found;
            }
        }

        return null;
    }
}
