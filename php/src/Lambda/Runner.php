<?php

namespace Surus\Lambda;

use Surus\Engine;

/** Serves events with a handler: reads the event's JSON and sends the result's JSON. */
final class Runner
{
    private const JSON = \JSON_THROW_ON_ERROR
        | \JSON_UNESCAPED_SLASHES
        | \JSON_UNESCAPED_UNICODE
        | \JSON_PRESERVE_ZERO_FRACTION;

    /** PHP's exit code after a fatal error or an uncaught exception. */
    private const FATAL = 255;

    /** How much memory the answer may need after `memory_limit` was reached. */
    private const RESERVE = 32 << 10;

    /** Takes the output of an event that has no answer yet. */
    private static ?Log $log = null;
    private static ?string $reserve = null;

    public static function serve(string $file): void
    {
        if (\function_exists('ini_set')) {
            // At memory_limit, PHP discards all buffers, and would send its message as the result.
            ini_set('display_errors', '0');
            ini_set('log_errors', '1');
        }
        self::$reserve = str_repeat('x', self::RESERVE);
        // A fatal error needs these classes, and none can be loaded if memory_limit was reached.
        class_exists(Answer::class);
        class_exists(RunningCommand::class);
        // Frameworks register theirs while they load, to print an error page or throw again.
        register_shutdown_function(self::failed(...));
        if (!Engine::boots()) {
            self::answer(static fn () => Handler::load($file));

            return;
        }
        // Output while loading belongs to no event.
        $log = Log::begin();
        $handler = Handler::load($file);
        $log->end();
        surus_serve(static fn () => self::answer(static fn () => $handler));
    }

    /** @param callable(): Handler $load */
    private static function answer(callable $load): void
    {
        $log = self::$log = Log::begin();
        // If the handler closes buffers of others or ends the request, something else would be sent
        // as the result.
        header_register_callback(static function (): void {
            if (self::$log) {
                http_response_code(500);
                header('Lambda-Runtime-Function-Error-Type: Function.OutputSent');
            }
        });
        register_shutdown_function(self::end(...));
        try {
            $answer = self::ask($load());
        } catch (\Throwable $thrown) {
            $log->end();
            Log::line("PHP Fatal error:  Uncaught $thrown");
            $answer = Answer::error($thrown, RunningCommand::end()?->result(self::FATAL) ?? []);
        }
        self::$log = null;
        $log->end();
        self::send($answer);
        // Shutdown functions may print.
        Log::begin();
    }

    /** Answers after a fatal error. */
    private static function failed(): void
    {
        self::$reserve = null;
        if (self::fatalError()) {
            self::end();
        }
    }

    /** Answers if the handler has neither returned nor thrown. */
    private static function end(): void
    {
        $log = self::$log;
        if (!$log) {
            return;
        }
        $log->end();
        $answer = self::unfinished();
        // Until here, a further fatal error fails the event.
        self::$log = null;
        self::send($answer);
        // After a fatal error, which PHP has logged, those of frameworks print an error page.
        self::fatalError() ? ob_start(static fn (): string => '', 1) : Log::begin();
    }

    private static function ask(Handler $handler): Answer
    {
        // `http` or `request` if an HTTP event is meant, `job` for a job or a run of `surus work`;
        // unset for other events of Lambda.
        $kind = $_SERVER['SURUS_EVENT'] ?? null;
        if ('before_snapshot' === $kind || 'after_restore' === $kind) {
            Hook::run($kind);

            return new Answer('', 204);
        }
        if ('url' === $kind && !$handler->takesRequests) {
            throw new \LogicException(
                "$_SERVER[REQUEST_URI] is a URL, but this function has none: its handler is not a PSR-15 handler, and there is no application; instead of before_snapshot and after_restore in [lambda], use Surus\Lambda\Hook::beforeSnapshot(…) and Surus\Lambda\Hook::afterRestore(…) in the handler's file"
            );
        }
        Hook::begin();
        if ('http' === $kind && $handler->takesRequests) {
            return new Answer('', 204, ['Surus-Takes' => 'requests']);
        }
        $event = \in_array($kind, ['request', 'url'], true) && $handler->takesRequests
            ? null
            : self::event();
        $answer = $handler->handle($event, Context::current());
        // Nothing reads the result of a job, so it need not be JSON, nor short.
        if ('job' === $kind && !($answer instanceof Answer && $answer->status >= 400)) {
            return new Answer('null');
        }

        return $answer instanceof Answer ? $answer : new Answer(self::encode($answer));
    }

    private static function event(): mixed
    {
        $event = file_get_contents('php://input');
        try {
            // Integers too large for PHP stay strings.
            return json_decode($event, true, 512, \JSON_THROW_ON_ERROR | \JSON_BIGINT_AS_STRING);
        } catch (\JsonException $e) {
            throw new \UnexpectedValueException(
                \sprintf(
                    'the event is not JSON (%s): %s',
                    $e->getMessage(),
                    substr($event, 0, 100)
                ),
                0,
                $e
            );
        }
    }

    private static function encode(mixed $result): string
    {
        try {
            return json_encode($result, self::JSON);
        } catch (\JsonException $e) {
            throw new \UnexpectedValueException(
                \sprintf(
                    'cannot encode the result of the handler (%s) as JSON: %s; encode binary data first, for example with base64_encode()',
                    get_debug_type($result),
                    $e->getMessage()
                ),
                0,
                $e
            );
        }
    }

    /** Why a handler has neither returned nor thrown. */
    private static function unfinished(): Answer
    {
        $command = RunningCommand::end();
        if ($error = self::fatalError()) {
            return Answer::failure(
                'FatalError',
                'FatalError',
                $error['message'],
                ["$error[file]:$error[line]"],
                $command?->result(self::FATAL) ?? []
            );
        }
        // External engines do not tell the exit code.
        if ($command && \function_exists('surus_exit_status')) {
            return $command->answer(surus_exit_status());
        }

        return Answer::failure(
            'Exit',
            'Exit',
            'the handler called exit() and returned nothing',
            [],
            $command ? ['output' => $command->output->text()] : []
        );
    }

    /** @return array{type: int, message: string, file: string, line: int}|null */
    private static function fatalError(): ?array
    {
        $error = error_get_last();
        $fatal = \E_ERROR
            | \E_CORE_ERROR
            | \E_COMPILE_ERROR
            | \E_USER_ERROR
            | \E_RECOVERABLE_ERROR
            | \E_PARSE;

        return $error && $error['type'] & $fatal ? $error : null;
    }

    private static function send(Answer $answer): void
    {
        if (headers_sent($file, $line)) {
            Log::line(
                "surus: the event failed because output was sent before its result ($file:$line); do not call fastcgi_finish_request(), nor flush() on PHP 8.4, nor ob_end_clean() or ob_end_flush() on buffers of others"
            );

            return;
        }
        http_response_code($answer->status);
        foreach ($answer->headers as $name => $values) {
            foreach ((array) $values as $number => $value) {
                // The first value of a name replaces PHP's own, such as Content-Type; a session's
                // cookie stays.
                header(
                    "$name: $value",
                    0 === $number && 0 !== strcasecmp($name, 'set-cookie'),
                    $answer->status
                );
            }
        }
        echo $answer->body;
    }
}
