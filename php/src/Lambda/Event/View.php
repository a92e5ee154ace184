<?php

namespace Surus\Lambda\Event;

/** An event as what sends it has made it. A handler whose first parameter is of such a class is given it instead of the array. */
interface View
{
    /** @throws NotThisEvent */
    public function __construct(mixed $event);
}
