<?php

namespace Surus\Lambda;

/** What a handler prints: lines of the log, as soon as they are complete, and never part of the answer. */
final class Log
{
    private string $line = '';
    private int $level;

    public static function begin(): self
    {
        $log = new self();
        ob_start(static fn (string $printed) => $log->take($printed), 1);
        $log->level = ob_get_level();

        return $log;
    }

    /** From here on what is printed is the answer. */
    public function end(): void
    {
        // Buffers that the handler has left open.
        while (ob_get_level() > $this->level) {
            ob_end_flush();
        }
        if (ob_get_level() === $this->level) {
            ob_end_flush();
        }
        if ('' !== $this->line) {
            $this->line($this->line);
            $this->line = '';
        }
    }

    public function line(string $line): void
    {
        error_log(rtrim($line, "\n"));
    }

    private function take(string $printed): string
    {
        $lines = explode("\n", $this->line.$printed);
        $this->line = array_pop($lines);
        foreach ($lines as $line) {
            $this->line($line);
        }

        return '';
    }
}
