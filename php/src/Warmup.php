<?php

namespace Surus;

/**
 * The current request, if it is a warm-up (`engine.warmup`), which no visitor has sent.
 */
final class Warmup
{
    private function __construct(public readonly int $number, public readonly int $of)
    {
    }

    /** Null if a visitor has sent the request. */
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
     * Runs $do at the end of the warm-up, after the application's shutdown functions, also after
     * exit().
     */
    public static function afterwards(\Closure $do): void
    {
        register_shutdown_function(static fn () => register_shutdown_function($do));
    }
}
