<?php

namespace Surus\Cli {

    /** Reads a multipart body part by part, without loading it completely. */
    final class Parts
    {
        // Starts with a line break, so that the first boundary needs no special case.
        private string $buffer = "\n";
        private string $boundary;

        public function __construct(private $in, string $boundary)
        {
            $this->boundary = "\n--$boundary";
        }

        /**
         * Moves to the next part. Returns its headers by lower-case name, with '' for the blank
         * line, or [] at the end.
         */
        public function next(): array
        {
            do {
                foreach ($this->content() as $_);
                if ($this->buffer === '') {
                    return [];
                }
                $this->buffer = \substr($this->buffer, \strlen($this->boundary));
            } while ($this->line() !== '');

            $headers = ['' => ''];
            $name = '';
            while (($line = $this->line()) !== '') {
                if (\strspn($line, " \t")) {
                    $headers[$name] .= $line;
                } else {
                    [$name, $value] = \explode(':', $line, 2) + [1 => ''];
                    $name = \strtolower($name);
                    $headers[$name] = \ltrim($value);
                }
            }
            return $headers;
        }

        /** Yields the rest of the part in pieces. */
        public function content(): \Generator
        {
            return $this->before($this->boundary);
        }

        private function line(): string
        {
            $line = \implode('', \iterator_to_array($this->before("\n"), false));
            $this->buffer = \substr($this->buffer, 1);
            return $line;
        }

        /**
         * Reads up to `$mark`, which stays in the buffer, or to the end, which leaves the buffer
         * empty.
         */
        private function before(string $mark): \Generator
        {
            while (($at = \strpos($this->buffer, $mark)) === false) {
                // The mark and the carriage return before it may be split over two reads.
                $sure = \strlen($this->buffer) - \strlen($mark);
                if ($sure > 0) {
                    yield \substr($this->buffer, 0, $sure);
                    $this->buffer = \substr($this->buffer, $sure);
                }
                $more = \fread($this->in, 1 << 16);
                if ((string) $more === '') {
                    yield $this->buffer;
                    $this->buffer = '';
                    return;
                }
                $this->buffer .= $more;
            }
            if ($at > 0) {
                yield \substr($this->buffer, 0, $this->buffer[$at - 1] === "\r" ? $at - 1 : $at);
            }
            $this->buffer = \substr($this->buffer, $at);
        }

        public function ended(): bool
        {
            return $this->buffer === '';
        }
    }
}
