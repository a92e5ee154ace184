<?php

namespace Surus\Lambda\Event;

/** A function is asked for something else than it is for. */
final class NotThisEvent extends \InvalidArgumentException
{
    public function __construct(string $source, mixed $event)
    {
        $has = \is_array($event) ? 'has '.(implode(', ', \array_slice(array_keys($event), 0, 10)) ?: 'nothing in it') : 'is '.get_debug_type($event);
        parent::__construct("This event is not from $source: it $has. What may help: the function's triggers, or a handler that takes an array.");
    }
}
