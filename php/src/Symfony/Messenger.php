<?php

namespace Surus\Symfony;

use Psr\Container\ContainerInterface;
use Psr\Log\LoggerInterface;
use Symfony\Component\Console\Command\LazyCommand;
use Symfony\Component\EventDispatcher\EventDispatcherInterface;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\Messenger\Command\AbstractFailedMessagesCommand;
use Symfony\Component\Messenger\Command\ConsumeMessagesCommand;
use Symfony\Component\Messenger\Event\WorkerMessageFailedEvent;
use Symfony\Component\Messenger\Event\WorkerRateLimitedEvent;
use Symfony\Component\Messenger\EventListener\SendFailedMessageToFailureTransportListener;
use Symfony\Component\Messenger\MessageBusInterface;
use Symfony\Component\Messenger\Transport\Receiver\ReceiverInterface;
use Symfony\Component\Messenger\Worker;
use Symfony\Component\RateLimiter\Exception\MaxWaitDurationExceededException;
use Symfony\Component\RateLimiter\Exception\ReserveNotSupportedException;
use Symfony\Component\RateLimiter\LimiterInterface;

/**
 * Messenger as the application has configured it. Its services are private, so they are taken from
 * the console command that consumes messages.
 */
final readonly class Messenger
{
    /** For how many seconds a worker waits for a rate limiter. */
    private const SHORT = 1.0;

    /** @param list<string> $names of receivers */
    private function __construct(
        private MessageBusInterface $bus,
        private ContainerInterface $receivers,
        public EventDispatcherInterface $events,
        private ?LoggerInterface $logger,
        private ?ContainerInterface $limiters,
        public array $names,
        /** Of receivers by name; null if there is no failure transport. */
        public ?object $failures,
    ) {
    }

    public static function of(KernelInterface $kernel): self
    {
        $consume = self::command($kernel, 'messenger:consume')
            ?? throw new \LogicException(
                'the application has no command messenger:consume; install symfony/messenger and symfony/console, and configure framework.messenger'
            );
        $read = \Closure::bind(
            static fn (object $of, string $name) => $of->$name ?? null,
            null,
            ConsumeMessagesCommand::class
        );
        $events = $read($consume, 'eventDispatcher');
        // The command adds it when it runs.
        if ($reset = $read($consume, 'resetServicesListener')) {
            $events->addSubscriber($reset);
        }
        $failed = self::command($kernel, 'messenger:failed:remove');

        return new self(
            $read($consume, 'routableBus'),
            $read($consume, 'receiverLocator'),
            $events,
            $read($consume, 'logger'),
            $read($consume, 'rateLimiterLocator'),
            $read($consume, 'receiverNames') ?? [],
            $failed
                ? \Closure::bind(
                    static fn () => $failed->failureTransports,
                    null,
                    AbstractFailedMessagesCommand::class
                )()
                : null,
        );
    }

    private static function command(KernelInterface $kernel, string $name): ?object
    {
        $container = $kernel->getContainer();
        $loader = $container->has('console.command_loader')
            ? $container->get('console.command_loader')
            : null;
        $command = $loader?->has($name) ? $loader->get($name) : null;

        return $command instanceof LazyCommand ? $command->getCommand() : $command;
    }

    public function receiver(string $name): ReceiverInterface
    {
        return $this->receivers->get($name);
    }

    /** @return list<string> names of failure transports */
    public function failureTransports(): array
    {
        return $this->failures ? array_keys($this->failures->getProvidedServices()) : [];
    }

    /** Whether messages of a transport that have failed for good are sent to another one. */
    public function keepsFailures(string $transport): bool
    {
        $senders = \Closure::bind(
            static fn (object $of) => $of->failureSenders,
            null,
            SendFailedMessageToFailureTransportListener::class
        );
        foreach ($this->events->getListeners(WorkerMessageFailedEvent::class) as $listener) {
            if (
                \is_array($listener)
                    && $listener[0] instanceof SendFailedMessageToFailureTransportListener
            ) {
                return $senders($listener[0])->has($transport);
            }
        }

        return false;
    }

    /** Handles one message with Messenger's own worker. Returns how it has failed, if it has. */
    public function handle(string $transport, SingleMessage $message): ?WorkerMessageFailedEvent
    {
        $failed = null;
        $note = static function (WorkerMessageFailedEvent $event) use (&$failed): void {
            $failed = $event;
        };
        $this->events->addListener(WorkerMessageFailedEvent::class, $note, 1024);
        try {
            $message->worker = new Worker(
                [$transport => $message],
                $this->bus,
                $this->events,
                $this->logger
            );
            $message->worker->run(['sleep' => 0]);
        } finally {
            $this->events->removeListener(WorkerMessageFailedEvent::class, $note);
        }

        return $failed;
    }

    /**
     * Takes one message from the rate limiter of a transport. If the limiter lets none run for
     * longer, returns for how many milliseconds: Messenger's worker would sleep until then, beyond
     * the time limit of the message.
     */
    public function takeFromLimit(string $transport): ?int
    {
        $limiter = $this->limiter($transport);
        $limit = $limiter?->consume();
        if ($limit?->isAccepted() ?? true) {
            return null;
        }
        $this->events->dispatch(new WorkerRateLimitedEvent($limiter, $transport));
        try {
            $limiter->reserve(1, self::SHORT)->wait();

            return null;
        } catch (MaxWaitDurationExceededException|ReserveNotSupportedException) {
            // The older sliding windows cannot reserve.
            $seconds = (float) $limit->getRetryAfter()->format('U.u') - microtime(true);

            return (int) ceil(1000 * max(0, $seconds));
        }
    }

    /** Whether the rate limiter of a transport would let a message run now. Takes none. */
    public function isWithinLimit(string $transport): bool
    {
        return ($this->limiter($transport)?->consume(0)->getRemainingTokens() ?? 1) > 0;
    }

    private function limiter(string $transport): ?LimiterInterface
    {
        return $this->limiters?->has($transport)
            ? $this->limiters->get($transport)->create()
            : null;
    }
}
