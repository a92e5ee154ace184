<?php

namespace Surus\Lambda;

use Illuminate\Contracts\Console\Kernel;
use Surus\Laravel\InConsole;
use Symfony\Component\Console\Application;
use Symfony\Component\Console\Input\StringInput;

/** One command line per event: "app:report --daily", or {"command": "app:report --daily"}. */
final readonly class Console
{
    /** @param \Closure(string, CommandOutput): array{code: int, signal: ?int} $run */
    private function __construct(private \Closure $run)
    {
    }

    /** Runs commands in this process, with Symfony's application or Laravel's kernel. */
    public static function application(Application|Kernel $application): self
    {
        if ($application instanceof Application) {
            $application->setAutoExit(false);
        } else {
            InConsole::begin();
        }

        return new self(static function (
            string $command,
            CommandOutput $output
        ) use ($application): array {
            $input = new StringInput($command);
            $input->setInteractive(false);
            // For echo, print and dump().
            ob_start(static function (string $printed) use ($output): string {
                $output->add($printed);

                return '';
            }, 1);
            $level = ob_get_level();
            try {
                $code = self::apply($application, $input, new SymfonyOutput($output));
            } finally {
                // With buffers that the command has left open.
                while (ob_get_level() >= $level && ob_end_flush()) {
                }
            }

            return ['code' => $code, 'signal' => null];
        });
    }

    private static function apply(
        Application|Kernel $application,
        StringInput $input,
        SymfonyOutput $output
    ): int
    {
        if ($application instanceof Application) {
            return $application->run($input, $output);
        }
        $code = $application->handle($input, $output);
        $application->terminate($input, $code);

        return $code;
    }

    /** Runs commands of a script such as bin/console or artisan, each in its own PHP process. */
    public static function script(string $file): self
    {
        return new self(static function (
            string $command,
            CommandOutput $output
        ) use ($file): array {
            $streams = [['file', '/dev/null', 'r'], ['pipe', 'w'], ['redirect', 1]];
            $process = proc_open([self::php(), $file, ...self::words($command)], $streams, $pipes);
            if (!$process) {
                throw new \RuntimeException(
                    "cannot run $file with "
                        .self::php()
                        .'; set the environment variable PHP_BINARY to the path of a command-line PHP'
                );
            }
            $ended = false;
            // If this process is stopped at the deadline, the command ends, too.
            register_shutdown_function(static function () use ($process, &$ended): void {
                if (!$ended) {
                    proc_terminate($process, 9);
                }
            });
            $status = self::follow($process, $pipes[1], $output);
            $ended = true;

            return $status;
        });
    }

    public function handle(mixed $event, Context $context): Answer
    {
        $command = \is_array($event) ? $event['command'] ?? $event['cli'] ?? null : $event;
        if (!\is_string($command) && self::isScheduleWithoutInput($event)) {
            Log::line(
                'surus: a schedule names no command, so nothing runs; set its input to "name --option" or {"command": "name --option"}'
            );

            return new Answer('{"warm":true}');
        }
        if (!\is_string($command)) {
            throw new \InvalidArgumentException(
                'this function runs commands; send an event "name --option" or {"command": "name --option"}'
            );
        }
        $running = RunningCommand::begin($command);
        ['code' => $code, 'signal' => $signal] = ($this->run)($command, $running->output);
        RunningCommand::end();

        return $running->answer($code, $signal);
    }

    /** Whether the event is what EventBridge sends if no input is configured. */
    private static function isScheduleWithoutInput(mixed $event): bool
    {
        return \is_array($event) && 'Scheduled Event' === ($event['detail-type'] ?? null)
            && \in_array($event['source'] ?? null, ['aws.events', 'aws.scheduler'], true)
            && \in_array($event['detail'] ?? null, [[], '{}'], true);
    }

    /**
     * How often, in microseconds, the loop below checks for the end of the process and of the time.
     */
    private const PAUSE = 50_000;

    /**
     * Reads a process's output until the process ends. Background processes that still hold the
     * pipe are not awaited.
     *
     * @param resource $process
     * @param resource $pipe
     *
     * @return array{code: int, signal: ?int}
     */
    private static function follow($process, $pipe, CommandOutput $output): array
    {
        stream_set_blocking($pipe, false);
        do {
            // Before reading the pipe, so that the last output is not missed.
            $status = proc_get_status($process);
            if (feof($pipe)) {
                usleep(self::PAUSE / 50);
            } elseif ($status['running']) {
                $read = [$pipe];
                $none = null;
                @stream_select($read, $none, $none, 0, self::PAUSE);
            }
            while (!\in_array($piece = fread($pipe, 65536), ['', false], true)) {
                $output->add($piece);
            }
        } while ($status['running']);
        fclose($pipe);
        proc_close($process);
        $signal = $status['signaled'] ? $status['termsig'] : null;

        // The exit code that shells report after a signal.
        return [
            'code' => null === $signal ? $status['exitcode'] : 128 + $signal,
            'signal' => $signal
        ];
    }

    private static function php(): string
    {
        return getenv('PHP_BINARY') ?: ('cli' === \PHP_SAPI ? \PHP_BINARY : 'php');
    }

    /**
     * Splits like a shell, but without expansions.
     *
     * @return list<string>
     */
    private static function words(string $command): array
    {
        preg_match_all(
            '/(?:[^\s"\'\\\\]|\\\\.|"(?:[^"\\\\]|\\\\.)*"|\'[^\']*\')+/s',
            $command,
            $found
        );
        $piece = static fn (array $piece) => match ($piece[0][0]) {
            '\'' => substr($piece[0], 1, -1),
            '"' => preg_replace('/\\\\(["\\\\$`])/', '$1', substr($piece[0], 1, -1)),
            '\\' => substr($piece[0], 1),
        };

        return array_map(
            static fn (string $word) => preg_replace_callback(
                '/"(?:[^"\\\\]|\\\\.)*"|\'[^\']*\'|\\\\./s',
                $piece,
                $word
            ),
            $found[0]
        );
    }
}
