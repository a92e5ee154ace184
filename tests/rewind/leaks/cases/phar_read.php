<?php
// An archive that was read, and is another file since.
return [
    'needs' => ['Phar'],
    'leaks' => false,
    'why' => 'the end of a request closes archives that nothing holds',
    'set' => function () {
        $f = LEAK_STATE . '/read.tar';
        @unlink($f);
        (new PharData($f))->addFromString('a', 'left');
        file_get_contents("phar://$f/a");
    },
    'see' => function () {
        $f = LEAK_STATE . '/read.tar';
        $data = str_pad('now', 512, "\0");
        $head = pack('a100a8a8a8a12a12a8a1a355', 'a', '0000644', '0000000', '0000000', '00000000003', '00000000000', '        ', '0', '');
        $sum = sprintf("%06o\0 ", array_sum(unpack('C*', $head)));
        file_put_contents($f, substr_replace($head, $sum, 148, 8) . $data . str_repeat("\0", 1024));
        return file_get_contents("phar://$f/a");
    },
];
