<?php

/*
 * Writes the messages for feeder.php.
 */

require __DIR__.'/vendor/autoload.php';

$serializer = new Symfony\Component\Messenger\Transport\Serialization\PhpSerializer();
foreach (['hello', 'sleep', 'count'] as $do) {
    $envelope = new Symfony\Component\Messenger\Envelope(new App\Job($do), [new Symfony\Component\Messenger\Stamp\BusNameStamp('messenger.bus.default')]);
    $bodies[$do] = $serializer->encode($envelope)['body'];
}
file_put_contents(__DIR__.'/bodies.json', json_encode($bodies, JSON_THROW_ON_ERROR));
