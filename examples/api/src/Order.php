<?php

namespace App;

final class Order
{
    public function __construct(
        public readonly int $id,
        public readonly Status $status,
        public readonly string $customer,
    ) {
    }
}
