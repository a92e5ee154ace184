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

    public function getRawBody(): string
    {
        return $this->record->body;
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
     */
    public function release($delay = 0): void
    {
        parent::release($delay);
        if ($delay <= 0) {
            return;
        }
        try {
            $this->delay((int) $delay);
        } catch (\Throwable $thrown) {
            Log::line(
                \sprintf(
                    'surus: cannot delay %s (%s) by %d s, so it is delivered again after the visibility timeout of its queue: %s; check: a connection "%s" of the driver sqs in config/queue.php, whose prefix is the queue\'s, with aws/aws-sdk-php, and a role that may sqs:ChangeMessageVisibility.',
                    $this->resolveName(),
                    $this->record->messageId,
                    $delay,
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
