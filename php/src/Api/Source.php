<?php

namespace Surus\Api;

/** Where the value of a handler's parameter comes from. */
enum Source
{
    case Path;
    case Query;
    case Body;
    case Request;
}
