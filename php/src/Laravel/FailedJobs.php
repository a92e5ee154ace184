<?php

namespace Surus\Laravel;

use Illuminate\Contracts\Foundation\Application;
use Illuminate\Queue\Console\RetryCommand;
use Symfony\Component\Console\Input\ArrayInput;
use Symfony\Component\Console\Output\NullOutput;

/** The failed jobs of an application, wherever it keeps them. */
final class FailedJobs
{
    public function __construct(private readonly Application $app)
    {
    }

    /** Lists them, or finds, retries or forgets one; returns those concerned. */
    public function handle(array $asked): array
    {
        $failer = $this->app->make('queue.failer');
        $jobs = 'list' === $asked['verb']
            ? $failer->all()
            : array_filter([$failer->find($asked['id'])]);
        if ($jobs && 'retry' === $asked['verb']) {
            $command = new RetryCommand();
            $command->setLaravel($this->app);
            $command->run(new ArrayInput(['id' => [$asked['id']]]), new NullOutput());
        } elseif ($jobs && 'forget' === $asked['verb']) {
            $failer->forget($asked['id']);
        }

        return array_map(static fn (object $job) => [
            'id' => (string) $job->id,
            'queue' => (string) $job->queue,
            'class' => (string) (json_decode($job->payload, true)['displayName'] ?? ''),
            'why' => explode("\n", (string) $job->exception, 2)[0],
            'failed_at' => (string) $job->failed_at,
        ], array_values($jobs));
    }
}
