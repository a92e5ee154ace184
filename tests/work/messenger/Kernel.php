<?php

namespace App;

use Doctrine\DBAL\Connection;
use Doctrine\DBAL\DriverManager;
use Doctrine\Persistence\ConnectionRegistry;
use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\DependencyInjection\Loader\Configurator\ReferenceConfigurator;
use Symfony\Component\HttpKernel\Kernel as HttpKernel;
use Symfony\Component\Messenger\Bridge\Doctrine\Transport\DoctrineTransportFactory;
use Symfony\Component\Messenger\Envelope;
use Symfony\Component\Messenger\Exception\UnrecoverableMessageHandlingException;
use Symfony\Component\Messenger\MessageBusInterface;
use Symfony\Component\Messenger\Stamp\RedeliveryStamp;
use Symfony\Component\Messenger\Transport\Serialization\SerializerInterface;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

date_default_timezone_set(getenv('ZONE'));

final class Order
{
    public function __construct(public string $do)
    {
    }
}

final class Handler
{
    private static int $inProcess = 0;

    public function __invoke(Order $order): void
    {
        $others = self::$inProcess++;
        self::note("$order->do, $others before");
        match ($order->do) {
            'throw', 'throw by headers' => throw new \RuntimeException('thrown by the handler'),
            'final' => throw new UnrecoverableMessageHandlingException('final for the handler'),
            'exit' => exit(3),
            'kill' => posix_kill(getmypid(), \SIGKILL),
            'hang' => sleep(600),
            'memory' => str_repeat('x', 1 << 40),
            'sleep' => sleep(15),
            'environment' => [
                self::note(\ini_get('max_execution_time').' '.getcwd().stream_get_contents(\STDIN)),
                fwrite(\STDERR, "said to STDERR\n"),
                fwrite(\STDOUT, "said to STDOUT\n"),
            ],
            default => str_starts_with($order->do, 'wait') && self::wait(),
        };
        self::note("$order->do is done");
    }

    private static function wait(): bool
    {
        while (!file_exists(getenv('NOTES').'.go')) {
            usleep(5000);
            clearstatcache();
        }

        return true;
    }

    private static function note(string $line): void
    {
        file_put_contents(getenv('NOTES'), "$line\n", \FILE_APPEND | \LOCK_EX);
    }
}

/** Stands for Doctrine's bundle. */
final class Registry implements ConnectionRegistry
{
    private ?Connection $connection = null;

    public function getDefaultConnectionName(): string
    {
        return 'default';
    }

    public function getConnection(?string $name = null): object
    {
        return $this->connection ??= DriverManager::getConnection(json_decode(getenv('DATABASE'), true));
    }

    public function getConnections(): array
    {
        return ['default' => $this->getConnection()];
    }

    public function getConnectionNames(): array
    {
        return ['default' => 'default'];
    }
}

/** Writes messages as headers, one with a name that SQS does not allow. */
final class Headers implements SerializerInterface
{
    public function encode(Envelope $envelope): array
    {
        $do = str_replace(' by headers', '', $envelope->getMessage()->do);
        $tries = base64_encode(serialize($envelope->all(RedeliveryStamp::class)));

        return ['body' => '{}', 'headers' => ['do' => $do, 'App\\Order' => 'by headers', 'tries' => $tries]];
    }

    public function decode(array $encoded): Envelope
    {
        ['do' => $do, 'App\\Order' => $how, 'tries' => $tries] = $encoded['headers'];

        return new Envelope(new Order("$do $how"), unserialize(base64_decode($tries)));
    }
}

final class Kernel extends HttpKernel
{
    use MicroKernelTrait;

    public function boot(): void
    {
        parent::boot();
        if ($sql = getenv('BOOTS')) {
            $this->getContainer()->get('doctrine')->getConnection()->executeQuery($sql)->fetchOne();
        }
    }

    public function registerBundles(): iterable
    {
        return [new FrameworkBundle()];
    }

    public function getProjectDir(): string
    {
        return \dirname(__DIR__);
    }

    public function getCacheDir(): string
    {
        return getenv('APP_CACHE_DIR');
    }

    public function getLogDir(): string
    {
        return getenv('APP_CACHE_DIR');
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        if (getenv('LIMIT')) {
            $container->services()->set('limiter.hourly', HourlyLimiter::class);
            class_exists(HourlyLimiter::class);
        }
        $container->extension('framework', [
            'secret' => 'nothing here is signed',
            'http_method_override' => false,
            'messenger' => [
                'failure_transport' => 'failed',
                'transports' => [
                    'async' => [
                        'dsn' => '%env(MESSENGER_TRANSPORT_DSN)%',
                        'serializer' => getenv('SERIALIZER') ?: null,
                        'retry_strategy' => ['max_retries' => 1, 'delay' => (int) getenv('RETRY_DELAY')],
                    ] + (getenv('LIMIT') ? ['rate_limiter' => 'hourly'] : []),
                    'failed' => getenv('FAILED_DSN') ?: 'doctrine://default?queue_name=failed',
                    'now' => 'sync://',
                ],
                'routing' => [Order::class => 'async'],
            ],
        ]);
        $services = $container->services();
        $services->set('doctrine', Registry::class)->public();
        $services->set(DoctrineTransportFactory::class)
            ->args([new ReferenceConfigurator('doctrine')])->tag('messenger.transport_factory');
        $services->set(Headers::class);
        $services->set(Handler::class)->tag('messenger.message_handler');
        $services->alias('bus', MessageBusInterface::class)->public();
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
    }
}
