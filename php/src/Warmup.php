<?php

namespace Surus;

/**
 * The request in hand, where it is one of `engine.warmup`: no visitor has sent it, and nobody reads
 * its answer.
 */
final class Warmup
{
    private function __construct(public readonly int $number, public readonly int $of)
    {
    }

    /** Null where a visitor has sent the request. */
    public static function current(): ?self
    {
        $said = $_SERVER['SURUS_WARMUP'] ?? null;

        return \is_string($said) && 2 === sscanf($said, '%d/%d', $number, $of) ? new self($number, $of) : null;
    }

    public function isLast(): bool
    {
        return $this->number === $this->of;
    }

    /**
     * Has $do run when the warm-up has ended, by exit() too, behind the shutdown functions of the
     * application.
     */
    public static function afterwards(\Closure $do): void
    {
        register_shutdown_function(static fn () => register_shutdown_function($do));
    }
}
