<?php

namespace Surus\Lambda;

/**
 * A command that runs, and its result {"exitCode": 0, "output": "…"}, also if exit() ends it. A
 * failed command is an error of the function with both fields, so that Lambda counts and retries
 * it.
 */
final class RunningCommand
{
    /** Bytes of the output that an error's message quotes. */
    private const QUOTED = 1000;

    private static ?self $current = null;

    public readonly CommandOutput $output;

    private function __construct(private readonly string $command)
    {
        $this->output = new CommandOutput();
    }

    public static function begin(string $command): self
    {
        return self::$current = new self($command);
    }

    /** Ends the output of the command that runs. Null: none does. */
    public static function end(): ?self
    {
        $ended = self::$current;
        self::$current = null;
        $ended?->output->end();

        return $ended;
    }

    public function answer(int $code, ?int $signal = null): Answer
    {
        $result = $this->result($code);
        if (0 !== $code) {
            $how = null === $signal
                ? "failed with exit code $code"
                : "was killed by signal $signal (exit code $code)";
            // All callers show the message, not all of them the other fields.
            $said = CommandOutput::last(rtrim($result['output']), self::QUOTED);

            return Answer::failure(
                'CommandFailed',
                'CommandFailed',
                "`$this->command` $how".('' === $said ? '' : ": $said"),
                [],
                $result
            );
        }

        return new Answer(
            json_encode(
                $result,
                \JSON_UNESCAPED_SLASHES
                    | \JSON_UNESCAPED_UNICODE
                    | \JSON_INVALID_UTF8_SUBSTITUTE
                    | \JSON_THROW_ON_ERROR
            )
        );
    }

    /** @return array{exitCode: int, output: string} what results and errors have */
    public function result(int $code): array
    {
        return ['exitCode' => $code, 'output' => $this->output->text()];
    }
}
