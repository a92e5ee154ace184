<?php

namespace Surus\Symfony;

use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Stamp\ErrorDetailsStamp;
use Symfony\Component\Messenger\Stamp\RedeliveryStamp;
use Symfony\Component\Messenger\Stamp\SentToFailureTransportStamp;
use Symfony\Component\Messenger\Stamp\TransportMessageIdStamp;
use Symfony\Component\Messenger\Transport\Receiver\ListableReceiverInterface;
use Symfony\Component\Messenger\Transport\Receiver\MessageCountAwareInterface;
use Symfony\Component\Messenger\Transport\Receiver\ReceiverInterface;

/** The messages of an application's failure transports, as far as those list them. */
final class FailedMessages
{
    /** How many are shown of each transport. */
    private const MOST = 1000;

    public function __construct(
        private readonly Messenger $messenger,
        private readonly Transports $transports
    )
    {
    }

    /** Lists them, or finds, retries or forgets one; returns those concerned. */
    public function handle(array $asked): array
    {
        $found = [];
        $unreachable = [];
        $notes = [];
        $lists = 'list' === $asked['verb'];
        foreach ($this->messenger->failureTransports() as $name) {
            if (!$lists && !str_starts_with($asked['id'], "$name/")) {
                continue;
            }
            try {
                $receiver = $this->transports->get($name);
                if (!$receiver instanceof ListableReceiverInterface) {
                    $count = self::count($receiver);
                    $why = self::unlisted($name, $receiver, $count);
                    if (null === $count && $lists) {
                        // It may have none.
                        $notes[] = $why;
                    } elseif (0 !== $count) {
                        $unreachable[] = $why;
                    }
                    continue;
                }
                foreach ($lists ? $receiver->all(self::MOST) : [] as $envelope) {
                    $found[] = self::told($name, $envelope);
                }
            } catch (\Throwable $thrown) {
                if (!$lists) {
                    throw $thrown;
                }
                // Its server may be down. Those of the others are not.
                $unreachable[] = "$name: ".self::firstLine($thrown->getMessage());
            }
            if ($lists) {
                continue;
            }
            $envelope = $receiver->find(substr($asked['id'], \strlen($name) + 1));
            if (!$envelope) {
                continue;
            }
            $told = self::told($name, $envelope);
            if ('forget' === $asked['verb']) {
                $receiver->reject($envelope);
            } elseif ('retry' === $asked['verb']) {
                $told['error'] = $this->retry($name, $receiver, $envelope);
            }
            $found[] = $told;
        }

        return ['jobs' => $found, 'unreachable' => $unreachable, 'notes' => $notes];
    }

    /** How many messages a transport has; null if it cannot count them. */
    private static function count(ReceiverInterface $receiver): ?int
    {
        return $receiver instanceof MessageCountAwareInterface
            ? $receiver->getMessageCount()
            : null;
    }

    /** Why the messages of a transport are not listed. */
    private static function unlisted(
        string $name,
        ReceiverInterface $receiver,
        ?int $count
    ): string
    {
        return sprintf(
            'the failure transport %s (%s) cannot list its messages%s; `messenger:failed:retry` handles them',
            $name,
            (new \ReflectionClass($receiver))->getShortName(),
            null === $count ? '' : " ($count)",
        );
    }

    /** Handles it now, as messenger:failed:retry does. Returns why it has failed again, if so. */
    private function retry(
        string $transport,
        ReceiverInterface $receiver,
        Envelope $envelope
    ): ?string
    {
        $message = new SingleMessage($envelope, $receiver);
        try {
            $thrown = $this->messenger->handle($transport, $message)?->getThrowable();
        } catch (\Throwable $thrown) {
            // Such as a listener that cannot send the message again.
        }

        return match (true) {
            null !== $thrown => self::firstLine(
                get_debug_type($thrown).': '.$thrown->getMessage()
            ),
            $message->rejected => 'the message was rejected',
            $message->acknowledged => null,
            default => 'a listener of the application has kept the message from being handled',
        };
    }

    private static function firstLine(string $text): string
    {
        return explode("\n", $text, 2)[0];
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
            'why' => self::firstLine(
                (string) $envelope->last(ErrorDetailsStamp::class)?->getExceptionMessage()
            ),
            'failed_at' => (string) $failed?->format(\DATE_RFC3339),
        ];
    }
}
