<?php
/*
 * Feeds a queue worker: feeder.php PORT DATABASE
 *
 * It takes what Lambda's Invoke API takes, an event of SQS, puts the event's messages into Laravel's table, and answers as Lambda does
 * once a worker has deleted them all. So one load measures both.
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
const ANSWER = '{"batchItemFailures":[]}';

[, $port, $file] = $argv;
// The worker may be another user, and its journal lies next to the database.
umask(0);
mkdir(dirname($file), 0777, true);
touch("$file.new");
$database = new PDO("sqlite:$file.new", options: [PDO::ATTR_TIMEOUT => 10]);
$database->exec(TABLES);
// The worker waits for the file, so it appears when it is complete.
unset($database);
rename("$file.new", $file);
$database = new PDO("sqlite:$file", options: [PDO::ATTR_TIMEOUT => 10]);
$insert = $database->prepare("INSERT INTO jobs (queue, payload, attempts, available_at, created_at) VALUES ('default', ?, 0, ?, ?)");
// Takes less time from the worker. Nothing is lost unless the machine crashes.
$database->exec('PRAGMA synchronous = OFF');
// Messages come while a worker runs one, or has none. While it takes one, they would meet it in SQLite, which fails one of both, and
// queue:work then sleeps for a second.
$state = $database->prepare('SELECT min(id), count(reserved_at), count(*) FROM jobs');

$listener = stream_socket_server("tcp://127.0.0.1:$port", $code, $error) ?: exit("cannot listen on port $port: $error\n");
$clients = $received = $arrived = $waiting = [];
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
                unset($clients[$id], $received[$id], $arrived[$id], $waiting[$id]);
                fclose($stream);
            }
            continue;
        }
        $received[$id] .= $bytes;
        [$head, $body] = explode("\r\n\r\n", $received[$id], 2) + ['', ''];
        if (preg_match('/^content-length: *(\d+)/mi', $head, $length) && strlen($body) >= (int) $length[1]) {
            $received[$id] = '';
            $arrived[$id] = json_decode($body, true, flags: JSON_THROW_ON_ERROR)['Records'];
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
                $insert->execute([$record['body'], time(), time()]);
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
            fwrite($clients[$id], "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ".strlen(ANSWER)."\r\n\r\n".ANSWER);
        }
    }
}
