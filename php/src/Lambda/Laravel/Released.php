<?php

namespace Surus\Lambda\Laravel;

/** A job is to come again. */
final class Released extends \RuntimeException
{
}
