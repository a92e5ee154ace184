<?php
/*
 * Feeds a queue worker: feeder.php PORT DATABASE [FORMAT BODIES]
 *
 * Like Lambda's Invoke API, it takes an event of SQS. It puts the event's messages into the table
 * of Laravel or of Symfony Messenger, and answers as Lambda does once a worker has deleted them
 * all. So one load measures both. Or it takes {"do": "hello", "count": 10, "queues": 0}, and finds
 * the message in the JSON file BODIES; with queues, q0, q1 and so on get the messages in turn. A
 * GET is answered at once.
 */

declare(strict_types=1);

const TABLES = <<<'SQL'
    PRAGMA journal_mode = WAL;
    CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, payload TEXT NOT NULL, attempts INTEGER NOT NULL,
        reserved_at INTEGER, available_at INTEGER NOT NULL, created_at INTEGER NOT NULL);
    CREATE INDEX jobs_queue_index ON jobs (queue);
    CREATE TABLE failed_jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, uuid TEXT NOT NULL UNIQUE, connection TEXT NOT NULL, queue TEXT NOT NULL,
        payload TEXT NOT NULL, exception TEXT NOT NULL, failed_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
    SQL;
const MESSENGER = <<<'SQL'
    PRAGMA journal_mode = WAL;
    CREATE TABLE messenger_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, body CLOB NOT NULL, headers CLOB NOT NULL,
        queue_name VARCHAR(190) NOT NULL, created_at DATETIME NOT NULL, available_at DATETIME NOT NULL, delivered_at DATETIME DEFAULT NULL);
    CREATE INDEX IDX_75EA56E0FB7336F0 ON messenger_messages (queue_name);
    CREATE INDEX IDX_75EA56E0E3BD61CE ON messenger_messages (available_at);
    CREATE INDEX IDX_75EA56E016BA31DB ON messenger_messages (delivered_at);
    SQL;
const ANSWER = '{"batchItemFailures":[]}';

[, $port, $file] = $argv;
$is_messenger = 'messenger' === ($argv[3] ?? '');
$bodies = is_file($argv[4] ?? '') ? json_decode(file_get_contents($argv[4]), true, flags: JSON_THROW_ON_ERROR) : [];
// The worker may be another user, and its journal lies next to the database.
umask(0);
mkdir(dirname($file), 0777, true);
touch("$file.new");
$database = new PDO("sqlite:$file.new", options: [PDO::ATTR_TIMEOUT => 10]);
$database->exec($is_messenger ? MESSENGER : TABLES);
// The worker waits for the file, so it appears when it is complete.
unset($database);
rename("$file.new", $file);
$database = new PDO("sqlite:$file", options: [PDO::ATTR_TIMEOUT => 10]);
$insert = $database->prepare($is_messenger
    ? "INSERT INTO messenger_messages (queue_name, body, headers, available_at, created_at) VALUES (?, ?, '[]', ?, ?)"
    : 'INSERT INTO jobs (queue, payload, attempts, available_at, created_at) VALUES (?, ?, 0, ?, ?)');
$number = 0;
// Takes less time from the worker. Nothing is lost unless the machine crashes.
$database->exec('PRAGMA synchronous = OFF');
// Messages come while a worker runs one, or has none. While it takes one, they would meet it in SQLite, which fails one of both, and
// queue:work then sleeps for a second.
$state = $database->prepare($is_messenger
    ? 'SELECT min(id), count(delivered_at), count(*) FROM messenger_messages'
    : 'SELECT min(id), count(reserved_at), count(*) FROM jobs');

$listener = stream_socket_server("tcp://127.0.0.1:$port", $code, $error) ?: exit("cannot listen on port $port: $error\n");
$clients = $received = $arrived = $waiting = $queues = [];
while (true) {
    $readable = [$listener, ...$clients];
    $none = null;
    // Half a millisecond while messages are under way.
    $is_busy = $waiting || $arrived;
    stream_select($readable, $none, $none, $is_busy ? 0 : 1, $is_busy ? 500 : 0);
    foreach ($readable as $stream) {
        if ($stream === $listener) {
            $client = stream_socket_accept($listener);
            stream_set_blocking($client, false);
            $clients[(int) $client] = $client;
            $received[(int) $client] = '';
            continue;
        }
        $id = (int) $stream;
        $bytes = fread($stream, 65536);
        if ('' === $bytes || false === $bytes) {
            if (feof($stream)) {
                // Its messages stay, so that a load begins with a queue that is as full as at its end.
                unset($clients[$id], $received[$id], $arrived[$id], $waiting[$id], $queues[$id]);
                fclose($stream);
            }
            continue;
        }
        $received[$id] .= $bytes;
        [$head, $body] = explode("\r\n\r\n", $received[$id], 2) + ['', null];
        if (null !== $body && str_starts_with($head, 'GET ')) {
            $received[$id] = '';
            answer($stream);
            continue;
        }
        if (preg_match('/^content-length: *(\d+)/mi', $head, $length) && strlen($body ?? '') >= (int) $length[1]) {
            $received[$id] = '';
            $asked = json_decode($body, true, flags: JSON_THROW_ON_ERROR);
            $queues[$id] = $asked['queues'] ?? 0;
            $arrived[$id] = $asked['Records'] ?? array_fill(0, $asked['count'], ['body' => $bodies[$asked['do']]]);
        }
    }
    if (!$waiting && !$arrived) {
        continue;
    }
    $state->execute();
    [$oldest, $running, $all] = $state->fetch(PDO::FETCH_NUM);
    $state->closeCursor();
    if ($arrived && ($running || !$all)) {
        $database->beginTransaction();
        foreach ($arrived as $id => $records) {
            foreach ($records as $record) {
                $queue = $queues[$id] ? 'q'.($number++ % $queues[$id]) : 'default';
                $now = $is_messenger ? gmdate('Y-m-d H:i:s') : time();
                $insert->execute([$queue, $record['body'], $now, $now]);
            }
            $waiting[$id] = (int) $database->lastInsertId();
        }
        $arrived = [];
        $database->commit();
        continue;
    }
    $oldest ??= PHP_INT_MAX;
    foreach ($waiting as $id => $last) {
        if ($last < $oldest) {
            unset($waiting[$id]);
            answer($clients[$id]);
        }
    }
}

function answer(mixed $client): void
{
    $headers = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ".strlen(ANSWER);
    fwrite($client, "$headers\r\n\r\n".ANSWER);
}
