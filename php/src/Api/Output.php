<?php

namespace Surus\Api;

/** Keeps what code prints during a request out of the response, which it would spoil. */
final class Output
{
    private const SHOWN = 200;
    private const PIECE = 65536;

    private readonly int $level;
    private int $bytes = 0;
    private string $start = '';

    public function __construct()
    {
        // A callback, so that a handler that flushes this buffer sends nothing either.
        ob_start($this->keep(...), self::PIECE);
        $this->level = ob_get_level();
    }

    public function discard(): void
    {
        while (ob_get_level() >= $this->level && ob_end_flush());
        if ($this->bytes > 0) {
            error_log(
                \sprintf(
                    'surus: %d bytes that a handler printed are not part of its response: %s',
                    $this->bytes,
                    json_encode($this->start, Json::FLAGS | \JSON_INVALID_UTF8_SUBSTITUTE)
                )
            );
        }
    }

    private function keep(string $text): string
    {
        $this->bytes += \strlen($text);
        $this->start .= substr($text, 0, self::SHOWN - \strlen($this->start));

        return '';
    }
}
