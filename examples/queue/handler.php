<?php

use Surus\Lambda\Context;
use Surus\Lambda\Event\Sqs;
use Surus\Lambda\Event\SqsRecord;

// Code here runs once, before the first event: create shared objects here.

return static fn (
    Sqs $messages,
    Context $context
): ?array => $messages->each(static function (SqsRecord $message): void {
    $name = $message->json()['name']
        ?? throw new InvalidArgumentException("message $message->messageId has no name");

    echo "Hello, $name!\n";
}, $context);
