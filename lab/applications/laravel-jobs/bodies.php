<?php

/*
 * Writes the jobs for feeder.php: names of as many letters take each other's place in the serialized job.
 */

$body = json_decode(file_get_contents(__DIR__.'/ten-jobs.json'), true, flags: JSON_THROW_ON_ERROR)['Records'][0]['body'];
$bodies = array_map(static fn (string $class) => str_replace('Hello', $class, $body), ['hello' => 'Hello', 'sleep' => 'Sleep', 'count' => 'Count']);
file_put_contents(__DIR__.'/bodies.json', json_encode($bodies, JSON_THROW_ON_ERROR));
