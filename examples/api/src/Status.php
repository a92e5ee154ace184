<?php

namespace App;

enum Status: string
{
    case Open = 'open';
    case Shipped = 'shipped';
}
