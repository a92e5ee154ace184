<?php

namespace Surus\Lambda\Laravel;

use Illuminate\Contracts\Container\Container;
use Illuminate\Contracts\Queue\Job as JobContract;
use Illuminate\Queue\Jobs\Job;
use Surus\Lambda\Event\SqsRecord;
use Surus\Lambda\Log;

/**
 * A job that Lambda has taken from the queue and deletes after success. It calls SQS only if a job
 * asks for a delay, to hide the message that long.
 */
final class SqsJob extends Job implements JobContract
{
    /** The call blocks the worker, so it gets only a few seconds. */
    private const HTTP = ['connect_timeout' => 2, 'timeout' => 5];

    /** @var \Illuminate\Container\Container */
    protected $container;

    private ?string $body = null;

    public function __construct(
        Container $container,
        private readonly SqsRecord $record,
        string $connectionName
    )
    {
        $this->container = $container;
        $this->connectionName = $connectionName;
        $this->queue = $record->queue();
    }

    public function getJobId(): string
    {
        return $this->record->messageId;
    }

    /** The payload, also one that Laravel 13 has put into its overflow storage. */
    public function getRawBody(): string
    {
        if (null === $this->body) {
            $pointer = $this->pointer();
            $this->body = null === $pointer ? $this->record->body : $this->overflowed($pointer);
        }

        return $this->body;
    }

    /** Deletes the payload from the overflow storage, if the connection is configured so. */
    public function deleteOverflow(): void
    {
        $pointer = $this->pointer();
        if (null === $pointer || !($this->overflow()['delete_after_processing'] ?? false)) {
            return;
        }
        try {
            $this->overflowStore()->forget($pointer);
        } catch (\Throwable $thrown) {
            // The job is done, and must not run again for that.
            Log::line(
                \sprintf(
                    'surus: cannot delete the payload %s from the overflow storage: %s',
                    $pointer,
                    $thrown->getMessage()
                )
            );
        }
    }

    /** The payload's key in the overflow storage; null if the message is the payload. */
    private function pointer(): ?string
    {
        $body = json_decode($this->record->body, true);
        $pointer = \is_array($body) && !isset($body['job']) ? $body['@pointer'] ?? null : null;

        return \is_string($pointer) ? $pointer : null;
    }

    private function overflowed(string $pointer): string
    {
        if (!($this->overflow()['enabled'] ?? false)) {
            throw new \RuntimeException(
                \sprintf(
                    'the message points to a payload in overflow storage, which this function does not read; set overflow.enabled of the connection "%s" in config/queue.php as where jobs are dispatched',
                    $this->connectionName
                )
            );
        }
        $payload = $this->overflowStore()->get($pointer);
        if (!\is_string($payload)) {
            throw new \RuntimeException(
                \sprintf(
                    'the overflow storage has no payload %s: a job that was done has been delivered again, or overflow.store of the connection "%s" in config/queue.php is not the cache in which jobs are dispatched',
                    $pointer,
                    $this->connectionName
                )
            );
        }

        return $payload;
    }

    /** The settings of the connection. */
    private function overflow(): array
    {
        return (array) $this->container->make('config')->get(
            "queue.connections.$this->connectionName.overflow"
        );
    }

    private function overflowStore(): object
    {
        return $this->container->make('cache')->store($this->overflow()['store'] ?? null);
    }

    public function attempts(): int
    {
        return $this->record->receiveCount;
    }

    /** As Lambda sent it. */
    public function getSqsJob(): array
    {
        return $this->record->record;
    }

    /**
     * Without a delay the message is delivered again after the visibility timeout, without a call.
     *
     * @param \DateTimeInterface|\DateInterval|int $delay
     */
    public function release($delay = 0): void
    {
        $seconds = $this->secondsUntil($delay);
        parent::release($delay);
        if ($seconds <= 0) {
            return;
        }
        try {
            $this->delay($seconds);
        } catch (\Throwable $thrown) {
            Log::line(
                \sprintf(
                    'surus: cannot delay %s (%s) by %d s, so it is delivered again after the visibility timeout of its queue: %s; check: a connection "%s" of the driver sqs in config/queue.php, whose prefix is the queue\'s, with aws/aws-sdk-php, and a role that may sqs:ChangeMessageVisibility.',
                    $this->resolveName(),
                    $this->record->messageId,
                    $seconds,
                    $thrown->getMessage(),
                    $this->connectionName
                )
            );
        }
    }

    private function delay(int $seconds): void
    {
        $connection = $this->container->make('queue')->connection($this->connectionName);
        if (!method_exists($connection, 'getSqs')) {
            throw new \LogicException(
                \sprintf(
                    'the connection is a %s without an SQS client',
                    get_debug_type($connection)
                )
            );
        }
        $connection->getSqs()->changeMessageVisibility([
            'QueueUrl' => $connection->getQueue($this->queue),
            'ReceiptHandle' => $this->record->record['receiptHandle'] ?? '',
            'VisibilityTimeout' => $seconds,
            '@http' => self::HTTP,
        ]);
    }
}
