<?php

namespace Surus\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\MaxAttemptsExceededException;
use Illuminate\Queue\Worker;
use Illuminate\Queue\WorkerOptions;
use Illuminate\Support\ConfigurationUrlParser;
use Surus\Engine;

/**
 * Runs the jobs of `surus work`. Laravel decides what becomes of a job; Surus does it, and answers
 * the broker.
 */
final class Jobs
{
    private readonly JobProcessor $processor;

    public function __construct(private readonly Application $app)
    {
        $this->processor = new JobProcessor($app);
    }

    public function handle(array $event): array
    {
        if ($event['describe'] ?? false) {
            $described = $this->describe();
            $this->disconnect();

            return $described;
        }
        if ($asked = $event['failures'] ?? null) {
            $failures = (new FailedJobs($this->app))->handle($asked);
            $this->disconnect();

            return $failures;
        }
        $job = new WorkJob($this->app, $event['connection'], $event['queue'], $event['id'], $event['payload'], $event['attempts']);
        $options = new WorkerOptions();
        $options->maxTries = $event['tries'] ?? 1;
        $options->timeout = $event['timeout'];
        $options->backoff = (string) ($event['backoff'] ?? 0);
        $thrown = isset($event['lost'])
            ? $this->lost($event['connection'], $job, $options, $event['lost'])
            : $this->processor->process($event['connection'], $job, $options);
        $this->disconnect();
        $release = match (true) {
            $job->isDeleted() => null,
            $job->isReleased() => $job->releasedFor,
            // As in Laravel, a job that neither ends nor throws stays reserved, so it comes again.
            default => $this->backoff($job, $options),
        };

        return ['release' => $release, 'unrecorded' => null !== $this->processor->unrecorded, 'error' => match (true) {
            null !== $thrown => get_debug_type($thrown).': '.$thrown->getMessage(),
            $job->hasFailed() => 'the job has called fail()',
            default => null,
        }];
    }

    /**
     * What Laravel decides about a job whose worker was lost. `queue:work` itself decides this only
     * after a timeout, and otherwise when the job comes again.
     */
    private function lost(string $connection, WorkJob $job, WorkerOptions $options, array $lost): \Throwable
    {
        $this->processor->begin();
        $why = new MaxAttemptsExceededException($job->resolveName().': '.$lost['why']);
        $decide = static function (Worker $worker) use ($connection, $job, $options, $lost, $why): void {
            if ($lost['fail']) {
                $worker->failJob($job, $why);

                return;
            }
            $worker->markJobAsFailedIfWillExceedMaxAttempts($connection, $job, (int) $options->maxTries, $why);
            if ($lost['timed_out'] && !$job->hasFailed() && method_exists($worker, 'markJobAsFailedIfItShouldFailOnTimeout')) {
                $worker->markJobAsFailedIfItShouldFailOnTimeout($connection, $job, $why);
            }
        };
        \Closure::bind($decide, null, Worker::class)($this->app->make('queue.worker'));

        return $why;
    }

    private function backoff(WorkJob $job, WorkerOptions $options): int
    {
        $backoff = static fn (Worker $worker): int => $worker->calculateBackoff($job, $options);

        return \Closure::bind($backoff, null, Worker::class)($this->app->make('queue.worker'));
    }

    /** The engine forgets everything after a job, so nothing may stay connected to be cut off. */
    private function disconnect(): void
    {
        if (Engine::forgets()) {
            Runner::disconnect($this->app);
        }
    }

    /** The application's queue configuration. */
    private function describe(): array
    {
        $config = $this->app->make('config');
        $name = (string) $config->get('queue.default');
        $queue = (array) $config->get("queue.connections.$name");

        return [
            'connection' => $name,
            'driver' => (string) ($queue['driver'] ?? ''),
            'queue' => (string) ($queue['queue'] ?? 'default'),
            'table' => $queue['table'] ?? null,
            // As in the connectors.
            'retry_after' => (int) ($queue['retry_after'] ?? 60),
            'failed_table' => $config->get('queue.failed.table'),
            'database' => $this->database($queue['connection'] ?? $config->get('database.default')),
            'redis' => 'redis' === ($queue['driver'] ?? '') ? $this->redis($queue['connection'] ?? 'default') : null,
        ];
    }

    /** The URL of a Redis connection, and what its keys begin with; null for a cluster. */
    private function redis(string $name): ?array
    {
        $server = $this->app->make('config')->get("database.redis.$name");
        if (!\is_array($server) || array_is_list($server)) {
            return null;
        }
        $server = (new ConfigurationUrlParser())->parseConfiguration($server);
        $host = (string) ($server['host'] ?? '127.0.0.1');
        $scheme = strtolower((string) ($server['scheme'] ?? $server['driver'] ?? 'tcp'));
        if (preg_match('~^(tcp|tls|unix)://(.*)$~', $host, $parts)) {
            [, $scheme, $host] = $parts;
        }
        $socket = 'unix' === $scheme ? (string) ($server['path'] ?? $host) : (str_starts_with($host, '/') ? $host : null);
        $user = rawurlencode((string) ($server['username'] ?? ''));
        $password = rawurlencode((string) ($server['password'] ?? ''));
        $database = (int) ($server['database'] ?? 0);
        if (null !== $socket) {
            $url = "redis+unix://$socket?db=$database".('' !== $user ? "&user=$user" : '').('' !== $password ? "&pass=$password" : '');
        } else {
            $host = str_contains($host, ':') ? '['.trim($host, '[]').']' : $host;
            $access = '' !== $user.$password ? "$user:$password@" : '';
            $url = \sprintf('%s://%s%s:%d/%d', 'tls' === $scheme ? 'rediss' : 'redis', $access, $host, $server['port'] ?? 6379, $database);
        }
        // Which of several prefixes counts differs by client and version.
        $client = $this->app->make('redis')->connection($name)->client();
        $prefix = match (true) {
            $client instanceof \Redis => (string) $client->getOption(\Redis::OPT_PREFIX),
            $client instanceof \Predis\Client => (string) $client->getOptions()->prefix?->getPrefix(),
            default => throw new \LogicException("the Redis connection $name is neither phpredis nor Predis"),
        };

        return ['url' => $url, 'prefix' => $prefix];
    }

    private function database(?string $name): ?array
    {
        $database = $this->app->make('config')->get("database.connections.$name");
        if (!\is_array($database)) {
            return null;
        }
        $database = (new ConfigurationUrlParser())->parseConfiguration($database);

        return [
            'driver' => (string) ($database['driver'] ?? ''),
            'database' => (string) ($database['database'] ?? ''),
            'prefix' => (string) ($database['prefix'] ?? ''),
        ];
    }
}
