<?php

namespace Surus\Symfony;

use Surus\Engine;
use Symfony\Component\Dotenv\Dotenv;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Event\WorkerMessageFailedEvent;
use Symfony\Component\Messenger\Exception\UnrecoverableMessageHandlingException;
use Symfony\Component\Messenger\Stamp\TransportMessageIdStamp;

/**
 * Runs the messages of `surus work` with Messenger's own worker, which decides what follows a
 * message: it sends those that have failed again, or to the failure transport. Surus then removes
 * the message from its broker.
 */
final class Messages
{
    /** Seconds until a message runs again that Messenger could not send again. */
    private const PAUSE = 10;

    private readonly Messenger $messenger;
    private readonly Transports $transports;

    public function __construct(private readonly KernelInterface $kernel)
    {
        $kernel->boot();
        $this->messenger = Messenger::of($kernel);
        $this->transports = new Transports($this->messenger);
        if (Engine::copiesBoot()) {
            BootDatabases::close(Server::connections($kernel->getContainer()));
        }
    }

    /** Boots the application's kernel. */
    public static function of(string $project): self
    {
        if (class_exists(Dotenv::class) && is_file("$project/.env")) {
            (new Dotenv())->bootEnv("$project/.env");
        }
        if (!class_exists('App\Kernel')) {
            throw new \LogicException(
                'the application has no class App\Kernel, which `surus work` boots'
            );
        }
        $environment = $_SERVER['APP_ENV'] ?? $_ENV['APP_ENV'] ?? (getenv('APP_ENV') ?: 'dev');
        $debug = $_SERVER['APP_DEBUG']
            ?? $_ENV['APP_DEBUG']
            ?? (false !== getenv('APP_DEBUG') ? getenv('APP_DEBUG') : 'prod' !== $environment);

        return new self(new \App\Kernel($environment, (bool) $debug));
    }

    public function handle(array $event): array
    {
        try {
            return match (true) {
                $event['describe'] ?? false => $this->transports->describe(),
                isset($event['failures']) => (
                    new FailedMessages($this->messenger, $this->transports)
                )->handle($event['failures']),
                isset($event['may_run']) => [
                    'may_run' => $this->messenger->isWithinLimit($event['may_run']['queue']),
                ],
                default => $this->decide($event),
            };
        } finally {
            $this->disconnect();
        }
    }

    private function decide(array $event): array
    {
        try {
            $serializer = $this->transports->serializer($event['queue']);
        } catch (\Throwable $thrown) {
            // Its broker or database may be unreachable for a while.
            return self::decision($thrown, release: self::PAUSE);
        }
        try {
            $encoded = json_decode($event['payload'], true, 512, \JSON_THROW_ON_ERROR);
            $envelope = $serializer->decode(
                ['body' => $encoded['body'], 'headers' => $encoded['headers'] ?? []]
            )
                ->with(new TransportMessageIdStamp($event['id']));
            if (isset($encoded['amqp'])) {
                $envelope = $envelope->with(Amqp::received($encoded));
            }
        } catch (\Throwable $thrown) {
            // Messenger would delete it.
            return self::decision($thrown, unrecorded: true);
        }

        return isset($event['lost'])
            ? $this->lost($event['queue'], $envelope, $event['lost'])
            : $this->process($event['queue'], $envelope);
    }

    private function process(string $transport, Envelope $envelope): array
    {
        $message = new SingleMessage($envelope);
        try {
            $wait = $this->messenger->takeFromLimit($transport);
            if (null !== $wait) {
                // Surus takes no further messages until then and until `may_run` is true.
                return ['refused' => true, 'wait_ms' => $wait];
            }
            $failed = $this->messenger->handle($transport, $message);
        } catch (\Throwable $thrown) {
            // Such as a listener that cannot send the message again.
            return self::decision($thrown, release: self::PAUSE);
        }

        return match (true) {
            $message->acknowledged => self::decision(null),
            $message->rejected => self::decision(
                $failed?->getThrowable() ?? new \RuntimeException('the message was rejected'),
                release: $this->transports->pauseOfRejected($transport),
                resent: $failed?->willRetry() ?? false,
            ),
            // A listener does not want it to be handled: it runs again, as in Messenger.
            default => self::decision(null, release: self::PAUSE),
        };
    }

    /** What Messenger decides about a message whose worker was lost; alone it would never know. */
    private function lost(string $transport, Envelope $envelope, array $lost): array
    {
        $why = $lost['fail']
            ? new UnrecoverableMessageHandlingException($lost['why'])
            : new \RuntimeException($lost['why']);
        $failed = new WorkerMessageFailedEvent($envelope, $transport, $why);
        try {
            $this->messenger->events->dispatch($failed);
        } catch (\Throwable $thrown) {
            return self::decision($thrown, release: self::PAUSE);
        }

        return self::decision(
            $why,
            release: $lost['fail'] ? null : $this->transports->pauseOfRejected($transport),
            unrecorded: $lost['fail'] && !$this->messenger->keepsFailures($transport),
            resent: $failed->willRetry(),
        );
    }

    private static function decision(
        ?\Throwable $thrown,
        ?int $release = null,
        bool $unrecorded = false,
        bool $resent = false
    ): array
    {
        return [
            'release' => $release,
            'unrecorded' => $unrecorded,
            'resent' => $resent,
            'error' => $thrown ? get_debug_type($thrown).': '.$thrown->getMessage() : null,
        ];
    }

    /**
     * The engine forgets everything after a message, so nothing may stay connected to be cut off.
     */
    private function disconnect(): void
    {
        if (!Engine::forgets()) {
            return;
        }
        $this->transports->disconnect();
        Server::disconnect($this->kernel->getContainer());
    }
}
