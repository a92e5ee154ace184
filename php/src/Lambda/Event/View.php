<?php

namespace Surus\Lambda\Event;

/**
 * A typed view of an event. If a handler's first parameter has such a class, it gets the view
 * instead of the array.
 */
interface View
{
    /** @throws NotThisEvent */
    public function __construct(mixed $event);
}
