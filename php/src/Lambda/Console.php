<?php

namespace Surus\Lambda;

use Illuminate\Contracts\Console\Kernel;
use Symfony\Component\Console\Application;
use Symfony\Component\Console\Input\StringInput;
use Symfony\Component\Console\Output\BufferedOutput;

/**
 * A command line per event: "app:report --daily", or {"command": "app:report --daily"}. The answer is {"exitCode": 0, "output": "…"}; a
 * command that fails is an error of the function, with both in it, so that Lambda counts it and tries again where it does.
 */
final readonly class Console
{
    /** @param \Closure(string): array{int, string} $run */
    private function __construct(private \Closure $run)
    {
    }

    /** Runs commands in this process: Symfony's application, or Laravel's kernel. */
    public static function application(Application|Kernel $application): self
    {
        if ($application instanceof Application) {
            $application->setAutoExit(false);
        }

        return new self(static function (string $command) use ($application): array {
            $output = new BufferedOutput();
            $input = new StringInput($command);
            $input->setInteractive(false);
            $code = $application instanceof Application ? $application->run($input, $output) : $application->handle($input, $output);
            if ($application instanceof Kernel) {
                $application->terminate($input, $code);
            }

            return [$code, $output->fetch()];
        });
    }

    /** Runs commands of a script such as bin/console or artisan, each in a PHP of its own. */
    public static function script(string $file): self
    {
        return new self(static function (string $command) use ($file): array {
            $streams = [['file', '/dev/null', 'r'], ['pipe', 'w'], ['redirect', 1]];
            $process = proc_open([self::php(), $file, ...self::words($command)], $streams, $pipes);
            if (!$process) {
                throw new \RuntimeException("could not run $file with ".self::php().'. What may help: the path of a PHP for the command line in the environment variable PHP_BINARY.');
            }
            $output = stream_get_contents($pipes[1]);

            return [proc_close($process), $output];
        });
    }

    public function handle(mixed $event, Context $context): Answer
    {
        $command = \is_array($event) ? $event['command'] ?? $event['cli'] ?? null : $event;
        if (!\is_string($command)) {
            throw new \InvalidArgumentException('This function runs commands; its events are "name --option" or {"command": "name --option"}.');
        }
        [$code, $output] = ($this->run)($command);
        foreach (preg_split('/\R/', rtrim($output)) as $line) {
            Log::line($line);
        }
        $answer = ['exitCode' => $code, 'output' => $output];
        if (0 !== $code) {
            return Answer::failure('CommandFailed', 'CommandFailed', "`$command` has ended with exit code $code", [], $answer);
        }

        return new Answer(json_encode($answer, \JSON_UNESCAPED_SLASHES | \JSON_UNESCAPED_UNICODE | \JSON_INVALID_UTF8_SUBSTITUTE | \JSON_THROW_ON_ERROR));
    }

    private static function php(): string
    {
        return getenv('PHP_BINARY') ?: ('cli' === \PHP_SAPI ? \PHP_BINARY : 'php');
    }

    /**
     * As a shell splits them, but nothing in them is anything else than text.
     *
     * @return list<string>
     */
    private static function words(string $command): array
    {
        preg_match_all('/(?:[^\s"\'\\\\]|\\\\.|"(?:[^"\\\\]|\\\\.)*"|\'[^\']*\')+/s', $command, $found);
        $piece = static fn (array $piece) => match ($piece[0][0]) {
            '\'' => substr($piece[0], 1, -1),
            '"' => preg_replace('/\\\\(["\\\\$`])/', '$1', substr($piece[0], 1, -1)),
            '\\' => substr($piece[0], 1),
        };

        return array_map(static fn (string $word) => preg_replace_callback('/"(?:[^"\\\\]|\\\\.)*"|\'[^\']*\'|\\\\./s', $piece, $word), $found[0]);
    }
}
