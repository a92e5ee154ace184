<?php

namespace Surus\Symfony;

use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Stamp\ErrorDetailsStamp;
use Symfony\Component\Messenger\Stamp\RedeliveryStamp;
use Symfony\Component\Messenger\Stamp\SentToFailureTransportStamp;
use Symfony\Component\Messenger\Stamp\TransportMessageIdStamp;
use Symfony\Component\Messenger\Transport\Receiver\ListableReceiverInterface;
use Symfony\Component\Messenger\Transport\Receiver\ReceiverInterface;

/** The messages of an application's failure transports, as far as those list them. */
final class FailedMessages
{
    /** How many are shown of each transport. */
    private const MOST = 1000;

    public function __construct(private readonly Messenger $messenger)
    {
    }

    /** Lists them, or retries or forgets one; returns those concerned. */
    public function handle(array $asked): array
    {
        $found = [];
        foreach ($this->messenger->failureTransports() as $name) {
            $receiver = $this->messenger->failures->get($name);
            if (!$receiver instanceof ListableReceiverInterface) {
                continue;
            }
            if ('list' === $asked['verb']) {
                foreach ($receiver->all(self::MOST) as $envelope) {
                    $found[] = self::told($name, $envelope);
                }
                continue;
            }
            $envelope = str_starts_with($asked['id'], "$name/")
                ? $receiver->find(substr($asked['id'], \strlen($name) + 1))
                : null;
            if (!$envelope) {
                continue;
            }
            $found[] = self::told($name, $envelope);
            if ('forget' === $asked['verb']) {
                $receiver->reject($envelope);
            } else {
                $this->retry($name, $receiver, $envelope);
            }
        }

        return $found;
    }

    /** Handles it now, as messenger:failed:retry does. */
    private function retry(string $transport, ReceiverInterface $receiver, Envelope $envelope): void
    {
        $message = new SingleMessage($envelope, $receiver);
        $message->worker = $this->messenger->worker($transport, $message);
        $message->worker->run(['sleep' => 0]);
    }

    private static function told(string $transport, Envelope $envelope): array
    {
        $failed = $envelope->last(RedeliveryStamp::class)?->getRedeliveredAt();
        $id = $envelope->last(TransportMessageIdStamp::class)?->getId();

        return [
            'id' => "$transport/$id",
            'queue' => (string) $envelope->last(
                SentToFailureTransportStamp::class
            )?->getOriginalReceiverName(),
            'class' => get_debug_type($envelope->getMessage()),
            'why' => strtok(
                (string) $envelope->last(ErrorDetailsStamp::class)?->getExceptionMessage(),
                "\n"
            ),
            'failed_at' => (string) $failed?->format(\DATE_RFC3339),
        ];
    }
}
