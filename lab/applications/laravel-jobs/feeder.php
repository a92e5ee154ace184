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
$first = $database->prepare('SELECT min(id) FROM jobs');

$listener = stream_socket_server("tcp://127.0.0.1:$port", $code, $error) ?: exit("cannot listen on port $port: $error\n");
$clients = $received = $waiting = [];
while (true) {
    $readable = [$listener, ...$clients];
    $none = null;
    // Half a millisecond while messages are under way.
    stream_select($readable, $none, $none, $waiting ? 0 : 1, $waiting ? 500 : 0);
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
                unset($clients[$id], $received[$id], $waiting[$id]);
                fclose($stream);
            }
            continue;
        }
        $received[$id] .= $bytes;
        [$head, $body] = explode("\r\n\r\n", $received[$id], 2) + ['', ''];
        if (preg_match('/^content-length: *(\d+)/mi', $head, $length) && strlen($body) >= (int) $length[1]) {
            $received[$id] = '';
            $database->beginTransaction();
            foreach (json_decode($body, true, flags: JSON_THROW_ON_ERROR)['Records'] as $record) {
                $insert->execute([$record['body'], time(), time()]);
            }
            $waiting[$id] = (int) $database->lastInsertId();
            $database->commit();
        }
    }
    if (!$waiting) {
        continue;
    }
    $first->execute();
    $oldest = $first->fetchColumn() ?? PHP_INT_MAX;
    $first->closeCursor();
    foreach ($waiting as $id => $last) {
        if ($last < $oldest) {
            unset($waiting[$id]);
            fwrite($clients[$id], "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ".strlen(ANSWER)."\r\n\r\n".ANSWER);
        }
    }
}
