<?php

namespace App;

final class Item
{
    public function __construct(
        public readonly string $product,
        public readonly float $price,
        public readonly int $quantity = 1,
    ) {
        if ($quantity < 1) {
            throw new \InvalidArgumentException('the quantity must be at least 1');
        }
    }
}
