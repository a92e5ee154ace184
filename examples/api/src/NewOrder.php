<?php

namespace App;

use Surus\Api\ListOf;

/** The body of POST /orders. */
final class NewOrder
{
    /** @param list<Item> $items */
    public function __construct(
        public readonly string $customer,
        #[ListOf(Item::class)]
        public readonly array $items,
        public readonly ?\DateTimeImmutable $due = null,
    ) {
    }

    public function total(): float
    {
        return array_sum(
            array_map(static fn (Item $item) => $item->price * $item->quantity, $this->items)
        );
    }
}
