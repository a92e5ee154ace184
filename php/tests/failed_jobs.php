<?php

// Tests of the list of Laravel's failed jobs, with stand-ins for Laravel.

namespace Illuminate\Contracts\Foundation {
    interface Application
    {
        public function make(string $name): object;
    }
}

namespace Illuminate\Queue\Failed {
    interface FailedJobProviderInterface
    {
        public function find(mixed $id): ?object;
    }
}

namespace {
    use Illuminate\Contracts\Foundation\Application;
    use Illuminate\Queue\Failed\FailedJobProviderInterface;
    use Surus\Laravel\FailedJobs;

    $failer = new class implements FailedJobProviderInterface {
        /** @var list<string> ids of the jobs that have been read */
        public array $read = [];

        public function ids(): array
        {
            return ['a', 'b', 'c'];
        }

        public function find(mixed $id): ?object
        {
            $this->read[] = $id;

            return (object) [
                'id' => $id,
                'queue' => 'mail',
                'payload' => '{"displayName":"App\\\\Mail"}',
                'exception' => "thrown\n#0",
                'failed_at' => '2026-01-01 00:00:00',
            ];
        }
    };
    $application = new class($failer) implements Application {
        public function __construct(private readonly object $failer)
        {
        }

        public function make(string $name): object
        {
            return $this->failer;
        }
    };

    return [
        'failed jobs are told in full' => static function () use ($failer, $application): void {
            $failer->read = [];
            $found = (new FailedJobs($application))->handle(['verb' => 'list']);
            same(['a', 'b', 'c'], array_column($found['jobs'], 'id'));
            same(['App\Mail', 'thrown'], [$found['jobs'][0]['class'], $found['jobs'][0]['why']]);
            same([], $found['unlisted']);
        },

        'failed jobs that cannot be read in time are told by their ids' => static function () use (
            $failer,
            $application
        ): void {
            $failer->read = [];
            $found = (new FailedJobs($application, 0.0))->handle(['verb' => 'list']);
            same(['a'], array_column($found['jobs'], 'id'));
            same(['b', 'c'], $found['unlisted']);
            same(['a'], $failer->read);
        },
    ];
}
