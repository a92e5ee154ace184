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

        return \is_string($said) && 2 === sscanf($said, '%d/%d', $number, $of)
            ? new self($number, $of)
            : null;
    }

    public function isLast(): bool
    {
        return $this->number === $this->of;
    }

    /**
     * Whether the process only tries the warm-up and then ends. The trial is a last warm-up, too.
     */
    public function isTrial(): bool
    {
        return 0 === $this->number;
    }

    /**
     * Runs $do at the end of the warm-up, after the application's shutdown functions, also after
     * exit().
     */
    public static function afterwards(\Closure $do): void
    {
        register_shutdown_function(static fn () => register_shutdown_function($do));
    }

    /**
     * Writes to the log what was created ahead, and what was left out and why, in one of the
     * processes that do the same. `surus status` shows it.
     *
     * @param list<string> $lines
     */
    public static function report(array $lines): void
    {
        if (
            \function_exists('surus_report_created')
                && !surus_report_created(implode('. ', $lines))
        ) {
            return;
        }
        foreach ($lines as $line) {
            error_log("warm-up: $line");
        }
    }

    /**
     * Saves what PHP code can see of the boot, if there will be warm-ups: all variables and
     * objects.
     */
    public static function saveBoot(): void
    {
        if (\function_exists('surus_save_boot')) {
            surus_save_boot();
        }
    }

    /**
     * Restores all that, except objects of Surus's own classes, so that nothing of a warm-up is
     * left but what it has loaded. False: nothing was saved.
     */
    public static function restoreBoot(): bool
    {
        return \function_exists('surus_restore_boot') && surus_restore_boot();
    }
}
