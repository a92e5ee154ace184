<?php

namespace Surus\Lambda;

use Surus\Engine;

/** The output of a command: logs each line at once, and keeps the end for the result. */
final class CommandOutput
{
    /** Bytes kept for the result. JSON may turn one into six, and Lambda accepts 6 MB. */
    private const KEPT = 512 * 1024;
    /** A line of this many bytes is logged even without a line break. */
    private const LONGEST_LINE = 64 * 1024;

    private string $kept = '';
    /** A line that has not ended. */
    private string $line = '';
    private int $size = 0;
    /** Whether Surus reads this process's stderr, and logs its lines. */
    private readonly bool $isFollowed;

    public function __construct()
    {
        $this->isFollowed = null !== Engine::name();
    }

    public function add(string $text): void
    {
        $this->size += \strlen($text);
        $this->kept .= $text;
        if (\strlen($this->kept) > 2 * self::KEPT) {
            $this->kept = substr($this->kept, -self::KEPT);
        }
        $lines = explode("\n", $this->line.$text);
        $this->line = array_pop($lines);
        if ($this->isFollowed) {
            self::write($text);
        } else {
            foreach ($lines as $line) {
                Log::line(rtrim($line, "\r"));
            }
        }
        if (\strlen($this->line) > self::LONGEST_LINE) {
            $this->end();
        }
    }

    /** Writes text that is logged after a crash, too, even if its line has not ended. */
    private static function write(string $text): void
    {
        // As Log::line().
        file_put_contents('php://stderr', strtr($text, "\0", ' '));
    }

    /** Logs a last line without a line break. */
    public function end(): void
    {
        if ('' !== $this->line) {
            $this->isFollowed ? self::write("\n") : Log::line($this->line);
            $this->line = '';
        }
    }

    /** The whole output, or its end and the number of bytes left out before. */
    public function text(): string
    {
        if ($this->size <= self::KEPT) {
            return $this->kept;
        }
        $kept = self::last($this->kept, self::KEPT);

        return \sprintf(
            "… (%d bytes left out; see the log)\n%s",
            $this->size - \strlen($kept),
            $kept
        );
    }

    /** The end of a text, at most $most bytes of whole UTF-8 characters. */
    public static function last(string $text, int $most): string
    {
        return \strlen($text) <= $most
            ? $text
            : preg_replace('/^[\x80-\xbf]{1,3}/', '', substr($text, -$most));
    }
}
