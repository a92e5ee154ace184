<?php

namespace Surus\Lambda;

/** The output of a command: each line goes to the log at once, and the end of all of it into the answer. */
final class CommandOutput
{
    /** Bytes of the answer. In JSON one may become six, and Lambda takes 6 MB. */
    private const KEPT = 512 * 1024;
    /** Bytes without a line break that are logged all the same. */
    private const LONGEST_LINE = 64 * 1024;

    private string $kept = '';
    private string $line = '';
    private int $size = 0;

    public function add(string $text): void
    {
        $this->size += \strlen($text);
        $this->kept .= $text;
        if (\strlen($this->kept) > 2 * self::KEPT) {
            $this->kept = substr($this->kept, -self::KEPT);
        }
        $lines = explode("\n", $this->line.$text);
        $this->line = array_pop($lines);
        foreach ($lines as $line) {
            Log::line(rtrim($line, "\r"));
        }
        if (\strlen($this->line) > self::LONGEST_LINE) {
            $this->end();
        }
    }

    /** Logs a last line that has no line break. */
    public function end(): void
    {
        if ('' !== $this->line) {
            Log::line($this->line);
            $this->line = '';
        }
    }

    /** The whole output, or its end and how much is missing before that. */
    public function text(): string
    {
        if ($this->size <= self::KEPT) {
            return $this->kept;
        }
        $kept = self::last($this->kept, self::KEPT);

        return \sprintf("… (%d bytes are left out; the log has them)\n%s", $this->size - \strlen($kept), $kept);
    }

    /** The end of a text that has at most so many bytes, in whole characters of UTF-8. */
    public static function last(string $text, int $most): string
    {
        return \strlen($text) <= $most ? $text : preg_replace('/^[\x80-\xbf]{1,3}/', '', substr($text, -$most));
    }
}
