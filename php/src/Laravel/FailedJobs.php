<?php

namespace Surus\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\Console\RetryCommand;
use Illuminate\Queue\Failed\FailedJobProviderInterface;
use Symfony\Component\Console\Input\ArrayInput;
use Symfony\Component\Console\Output\NullOutput;

/** The failed jobs of an application, wherever it keeps them. */
final class FailedJobs
{
    /** How many are shown. */
    private const MOST = 1000;

    /** How many others can be retried or forgotten at once. */
    private const UNLISTED = 100_000;

    /** How many bytes of a reason are shown. */
    private const REASON = 1000;

    /** For how many seconds they are read. A listing is given up after 30. */
    private const READ = 10.0;

    public function __construct(
        private readonly Application $app,
        private readonly float $read = self::READ
    )
    {
    }

    /** Lists them, or finds, retries or forgets one; returns those concerned. */
    public function handle(array $asked): array
    {
        $failer = $this->app->make('queue.failer');
        if ('list' === $asked['verb']) {
            return $this->list($failer);
        }
        $jobs = array_filter([$failer->find($asked['id'])]);
        if ($jobs && 'retry' === $asked['verb']) {
            $command = new RetryCommand();
            $command->setLaravel($this->app);
            $command->run(new ArrayInput(['id' => [$asked['id']]]), new NullOutput());
        } elseif ($jobs && 'forget' === $asked['verb']) {
            $failer->forget($asked['id']);
        }

        return self::found(array_map(self::told(...), $jobs));
    }

    /**
     * The payloads of all jobs might not fit in memory, so each job is read alone if possible. Of
     * those that cannot be read in time, only the ids are told.
     */
    private function list(FailedJobProviderInterface $failer): array
    {
        $told = [];
        $unlisted = [];
        $readsAlone = method_exists($failer, 'ids');
        $began = hrtime(true);
        foreach ($readsAlone ? $failer->ids() : $failer->all() as $one) {
            $isLate = $readsAlone && $told && (hrtime(true) - $began) / 1e9 >= $this->read;
            if ($isLate || \count($told) === self::MOST) {
                $unlisted[] = (string) ($readsAlone ? $one : $one->id);
            } elseif ($job = $readsAlone ? $failer->find($one) : $one) {
                $told[] = self::told($job);
            }
        }

        return self::found($told, $unlisted);
    }

    private static function found(array $jobs, array $unlisted = []): array
    {
        return [
            'jobs' => array_values($jobs),
            'unlisted' => \array_slice($unlisted, 0, self::UNLISTED),
            'unnamed' => max(0, \count($unlisted) - self::UNLISTED),
            'unreachable' => [],
        ];
    }

    private static function told(object $job): array
    {
        return [
            'id' => (string) $job->id,
            'queue' => (string) $job->queue,
            'class' => (string) (json_decode($job->payload, true)['displayName'] ?? ''),
            'why' => mb_strcut(
                explode("\n", (string) $job->exception, 2)[0],
                0,
                self::REASON,
                'UTF-8'
            ),
            'failed_at' => (string) $job->failed_at,
        ];
    }
}
