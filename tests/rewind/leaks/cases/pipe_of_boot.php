<?php
// Data that a request writes into a pipe between two descriptors from the boot.
return [
    'needs' => ['FFI'],
    'boot' => fn () => new class {
        private $c, $ends, $text;
        function __construct()
        {
            $this->c = FFI::cdef('int pipe2(int *ends, int flags); int close(int fd);
                long read(int fd, void *to, unsigned long count); long write(int fd, const char *text, unsigned long count);', 'libc.so.6');
            $this->ends = $this->c->new('int[2]');
            $this->text = $this->c->new('char[10]');
            $this->c->pipe2($this->ends, 04000); // O_NONBLOCK
        }
        function write($text) { return $this->c->write($this->ends[1], $text, strlen($text)); }
        function read() { return $this->c->read($this->ends[0], $this->text, 10); }
        // Where every request boots.
        function __destruct() { $this->c->close($this->ends[0]); $this->c->close($this->ends[1]); }
    },
    'set' => function ($boot) { $boot->write('left'); },
    'see' => fn ($boot) => "{$boot->read()} {$boot->write('own')} {$boot->read()}",
];
