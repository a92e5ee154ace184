<?php

namespace App;

class Late
{
    public static string $typed;
    public static array $list = [];
    public static ?object $object = null;
    public static string $default = self::class.' default';
}
