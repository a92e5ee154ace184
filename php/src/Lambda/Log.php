<?php

namespace Surus\Lambda;

/**
 * Sends a handler's output to the log line by line, so that it never becomes part of the response.
 */
final class Log
{
    private string $line = '';
    private int $level;

    public static function begin(): self
    {
        $log = new self();
        ob_start(static fn (string $printed, int $phase) => $log->take($printed, $phase), 1);
        $log->level = ob_get_level();

        return $log;
    }

    /** Further output is the response. Repeated calls do nothing. */
    public function end(): void
    {
        if (0 === $this->level) {
            return;
        }
        // Buffers that the handler has left open.
        while (ob_get_level() > $this->level) {
            ob_end_flush();
        }
        if (ob_get_level() === $this->level) {
            ob_end_flush();
        }
        $this->level = 0;
    }

    public static function line(string $line): void
    {
        // The log ends at a NUL, which names of anonymous classes contain.
        error_log(strtr($line, "\0", ' '));
    }

    private function take(string $printed, int $phase): string
    {
        $lines = explode("\n", $this->line.$printed);
        $this->line = array_pop($lines);
        foreach ($lines as $line) {
            self::line($line);
        }
        // A last line without a line break.
        if ($phase & \PHP_OUTPUT_HANDLER_FINAL && '' !== $this->line) {
            self::line($this->line);
            $this->line = '';
        }

        return '';
    }
}
