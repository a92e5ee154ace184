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
        if (isset($above[$id]) || $object instanceof \Closure || $object instanceof \UnitEnum) {
            return $object::class.($object instanceof \UnitEnum ? "::$object->name" : '');
        }
        if ($object instanceof \DateTimeInterface) {
            $time = $object->format('U');

            return $object->format('c u').($this->isTime($time) ? self::TIME : '');
        }

        return $object::class
            .$this->list(get_mangled_object_vars($object), [$id => true] + $above, $depth);
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
