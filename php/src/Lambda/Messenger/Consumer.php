<?php

namespace Surus\Lambda\Messenger;

use Psr\EventDispatcher\EventDispatcherInterface;
use Surus\Lambda\Context;
use Surus\Lambda\Event\Sqs;
use Surus\Lambda\Event\SqsRecord;
use Surus\Lambda\Log;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Event\WorkerMessageHandledEvent;
use Symfony\Component\Messenger\Event\WorkerMessageReceivedEvent;
use Symfony\Component\Messenger\Exception\HandlerFailedException;
use Symfony\Component\Messenger\Exception\RecoverableExceptionInterface;
use Symfony\Component\Messenger\Exception\UnrecoverableExceptionInterface;
use Symfony\Component\Messenger\MessageBusInterface;
use Symfony\Component\Messenger\Stamp\ConsumedByWorkerStamp;
use Symfony\Component\Messenger\Stamp\ReceivedStamp;
use Symfony\Component\Messenger\Stamp\RedeliveryStamp;
use Symfony\Component\Messenger\Stamp\SentToFailureTransportStamp;
use Symfony\Component\Messenger\Stamp\TransportMessageIdStamp;
use Symfony\Component\Messenger\Transport\Sender\SenderInterface;
use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;
use Symfony\Contracts\Service\ResetInterface;

/**
 * Consumes Symfony Messenger's messages from an SQS queue, in the format of Messenger's SQS
 * transport.
 *
 * The queue retries, and its dead-letter queue keeps messages that never succeed. Messenger's retry
 * strategies are not used, since they would send a second message. If handlers declare a failure
 * final, the message is done and goes to the failure transport, if there is one.
 */
final readonly class Consumer
{
    private const HEADERS = 'X-Symfony-Messenger';

    public function __construct(
        private MessageBusInterface $bus,
        private SerializerInterface $serializer,
        /** The transport's name for stamps and events. */
        private string $transport = 'async',
        private ?EventDispatcherInterface $events = null,
        /** Such as `services_resetter`: resets services between messages. */
        private ?ResetInterface $resetter = null,
        private ?SenderInterface $failureTransport = null,
    ) {
    }

    public function handle(mixed $event, Context $context): ?array
    {
        return (new Sqs($event))->each(function (SqsRecord $record): void {
            try {
                $this->consume($record);
            } finally {
                $this->resetter?->reset();
            }
        }, $context);
    }

    private function consume(SqsRecord $record): void
    {
        $envelope = $this->envelope($record);
        if ($this->events) {
            $this->events->dispatch(
                $received = new WorkerMessageReceivedEvent($envelope, $this->transport)
            );
            if (!$received->shouldHandle()) {
                return;
            }
            $envelope = $received->getEnvelope();
        }
        try {
            $envelope = $this->bus->dispatch(
                $envelope->with(new ReceivedStamp($this->transport), new ConsumedByWorkerStamp())
            );
        } catch (\Throwable $thrown) {
            if (!self::isFinal($thrown)) {
                throw $thrown;
            }
            Log::line("surus: $record->messageId failed for good: $thrown");
            $this->failureTransport?->send(
                $envelope->with(new SentToFailureTransportStamp($this->transport))
            );

            return;
        }
        $this->events?->dispatch(new WorkerMessageHandledEvent($envelope, $this->transport));
    }

    private function envelope(SqsRecord $record): Envelope
    {
        $attributes = array_filter(
            $record->record['messageAttributes'] ?? [],
            static fn (array $attribute) => 'String' === $attribute['dataType']
        );
        $headers = array_map(
            static fn (array $attribute) => $attribute['stringValue'],
            $attributes
        );
        if (isset($headers[self::HEADERS])) {
            // Headers with names that SQS does not accept.
            $headers = json_decode(
                $headers[self::HEADERS],
                true,
                512,
                \JSON_THROW_ON_ERROR
            ) + $headers;
            unset($headers[self::HEADERS]);
        }
        $envelope = $this->serializer->decode(['body' => $record->body, 'headers' => $headers]);
        if ($record->receiveCount > 1) {
            $envelope = $envelope->with(new RedeliveryStamp($record->receiveCount - 1));
        }

        return $envelope->with(new TransportMessageIdStamp($record->messageId));
    }

    /** Whether a retry is useless, decided like Messenger's own listener. */
    private static function isFinal(\Throwable $thrown): bool
    {
        if ($thrown instanceof RecoverableExceptionInterface) {
            return false;
        }
        if (!$thrown instanceof HandlerFailedException) {
            return $thrown instanceof UnrecoverableExceptionInterface;
        }
        // Versions differ in the method's name.
        $nested = method_exists($thrown, 'getWrappedExceptions')
            ? $thrown->getWrappedExceptions()
            : $thrown->getNestedExceptions();
        foreach ($nested as $one) {
            if (
                $one instanceof RecoverableExceptionInterface
                    || !$one instanceof UnrecoverableExceptionInterface
            ) {
                return false;
            }
        }

        return (bool) $nested;
    }
}
