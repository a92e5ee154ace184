<?php

namespace Surus\Symfony;

use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Transport\Receiver\ReceiverInterface;
use Symfony\Component\Messenger\Worker;

/** One message for Messenger's worker, which ends after it. */
final class SingleMessage implements ReceiverInterface
{
    public ?Worker $worker = null;
    public bool $acknowledged = false;
    public bool $rejected = false;

    /** @param ?ReceiverInterface $keeper where the message ends; null if Surus ends it */
    public function __construct(
        private readonly Envelope $envelope,
        private readonly ?ReceiverInterface $keeper = null
    )
    {
    }

    public function get(): iterable
    {
        $this->worker?->stop();

        return [$this->envelope];
    }

    public function ack(Envelope $envelope): void
    {
        $this->keeper?->ack($envelope);
        $this->acknowledged = true;
    }

    public function reject(Envelope $envelope): void
    {
        $this->keeper?->reject($envelope);
        $this->rejected = true;
    }
}
