<?php

namespace Surus;

/**
 * Describes the state of services, so that two of one name can be compared. Other services in it
 * are only named.
 */
final class Fingerprint
{
    /** Stands behind each value that looks like the current time. */
    public const TIME = "\0the time\0";

    /** Stands in front of the class of an object whose contents PHP does not show. */
    public const HIDDEN = "\0hidden\0";

    /** Seconds. A date of these days looks like the current time. */
    private const RECENT = 3 * 86_400;

    /** Classes of PHP that show all that is in their objects as properties, or keep nothing. */
    private const SHOWN = [
        \Random\Engine\Secure::class, \Random\Randomizer::class, \ReflectionType::class,
        \Reflector::class, \SessionHandler::class, \Throwable::class, \stdClass::class,
    ];

    /** Classes of PHP with contents of their own, and the method that shows them. */
    private const SHOWN_BY = [
        \ArrayIterator::class => '__serialize',
        \ArrayObject::class => '__serialize',
        \DateInterval::class => '__serialize',
        \DatePeriod::class => '__serialize',
        \DateTimeZone::class => '__serialize',
        \Random\Engine\Mt19937::class => '__serialize',
        \Random\Engine\PcgOneseq128XslRr64::class => '__serialize',
        \Random\Engine\Xoshiro256StarStar::class => '__serialize',
        \SplDoublyLinkedList::class => '__serialize',
        \SplFixedArray::class => 'toArray',
        \SplObjectStorage::class => '__serialize',
        \WeakReference::class => 'get',
    ];

    private const DEEPEST = 8;
    private const MOST = 20_000;

    private int $seen = 0;

    /** @var array<int, string> names of services by object id */
    private readonly array $names;

    /** @param array<string, object> $services */
    private function __construct(array $services)
    {
        $names = [];
        // An object may have several names.
        ksort($services);
        foreach ($services as $name => $service) {
            $names[spl_object_id($service)] ??= $name;
        }
        $this->names = $names;
    }

    /**
     * @param array<string, object> $services
     * @param array<string, object> $others   objects that are only named, too
     *
     * @return array<string, string> by name
     */
    public static function ofServices(array $services, array $others): array
    {
        $fingerprints = [];
        $all = new self($others + $services);
        foreach ($services as $name => $service) {
            $all->seen = 0;
            $fingerprints[$name] = $all->object($service, [], 0);
        }

        return $fingerprints;
    }

    /** @param array<int, true> $above objects that contain the value */
    private function value(mixed $value, array $above, int $depth): string
    {
        if (++$this->seen > self::MOST || $depth > self::DEEPEST) {
            return '…';
        }

        return match (true) {
            \is_object($value) => isset($this->names[spl_object_id($value)])
                ? '@'.$this->names[spl_object_id($value)]
                : $this->object($value, $above, $depth),
            \is_array($value) => $this->list($value, $above, $depth),
            \is_resource($value) => get_resource_type($value),
            default => var_export($value, true).($this->isTime($value) ? self::TIME : ''),
        };
    }

    /** @param array<int, true> $above */
    private function list(array $values, array $above, int $depth): string
    {
        $text = '[';
        foreach ($values as $key => $value) {
            $text .= $this->value($key, $above, $depth + 1)
                .'=>'
                .$this->value($value, $above, $depth + 1)
                .',';
        }

        return $text.']';
    }

    /** @param array<int, true> $above */
    private function object(object $object, array $above, int $depth): string
    {
        $id = spl_object_id($object);
        if (isset($above[$id]) || $object instanceof \UnitEnum) {
            return $object::class.($object instanceof \UnitEnum ? "::$object->name" : '');
        }
        if ($object instanceof \DateTimeInterface) {
            $isRecent = abs($object->getTimestamp() - time()) < self::RECENT;

            return $object->format('c u').($isRecent ? self::TIME : '');
        }
        $above = [$id => true] + $above;
        if ($object instanceof \Closure) {
            return $this->closure($object, $above, $depth);
        }

        return $object::class
            .$this->list(get_mangled_object_vars($object), $above, $depth)
            .$this->contents($object, $above, $depth);
    }

    /** @param array<int, true> $above */
    private function closure(\Closure $closure, array $above, int $depth): string
    {
        $function = new \ReflectionFunction($closure);
        $captured = [$function->getClosureThis(), $function->getStaticVariables()];

        return \sprintf('%s:%d ', $function->getFileName(), $function->getStartLine())
            .$function->name
            .$this->list($captured, $above, $depth);
    }

    /**
     * What an object of PHP's own classes has besides properties.
     *
     * @param array<int, true> $above
     */
    private function contents(object $object, array $above, int $depth): string
    {
        $class = new \ReflectionClass($object);
        while ($class && !$class->isInternal()) {
            $class = $class->getParentClass();
        }
        if (!$class) {
            return '';
        }
        if ($object instanceof \WeakMap) {
            $pairs = [];
            foreach ($object as $key => $value) {
                $pairs[] = [$key, $value];
            }

            return $this->list($pairs, $above, $depth);
        }
        foreach (self::SHOWN_BY as $name => $method) {
            if (is_a($class->name, $name, true)) {
                // Not one that the application has put in its place.
                $shown = (new \ReflectionMethod($name, $method))->invoke($object);

                return $this->list([$shown], $above, $depth);
            }
        }
        foreach (self::SHOWN as $name) {
            if (is_a($class->name, $name, true)) {
                return '';
            }
        }

        return self::HIDDEN.$class->name;
    }

    private function isTime(mixed $value): bool
    {
        if (\is_string($value) && !is_numeric($value)) {
            return str_contains($value, date('Y-m-d'));
        }

        // Of this process: the boot may have begun seconds ago.
        return is_numeric($value) && (abs($value - time()) < 60 || (string) $value === date('Y'));
    }
}
