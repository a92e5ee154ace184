<?php

use Surus\Lambda\Context;
use Surus\Lambda\Event\Sqs;
use Surus\Lambda\Event\SqsRecord;

// What is needed once is made here, before the first event comes.

return static fn (Sqs $messages, Context $context): ?array => $messages->each(static function (SqsRecord $message): void {
    $name = $message->json()['name'] ?? throw new InvalidArgumentException("Message $message->messageId says no name.");

    echo "Hello, $name!\n";
}, $context);
