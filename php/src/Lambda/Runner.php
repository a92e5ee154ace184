<?php

namespace Surus\Lambda;

use Surus\Engine;

/** Has the handler that a file returns handle every event that comes: its JSON in, the answer's JSON out. */
final class Runner
{
    private const JSON = \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_SLASHES | \JSON_UNESCAPED_UNICODE | \JSON_PRESERVE_ZERO_FRACTION;

    public static function serve(string $file): void
    {
        if (!Engine::boots()) {
            self::answer(static fn () => Handler::load($file));

            return;
        }
        // What it prints while it loads has no event that it could be the answer of.
        $log = Log::begin();
        $handler = Handler::load($file);
        $log->end();
        surus_serve(static fn () => self::answer(static fn () => $handler));
    }

    /** @param callable(): Handler $load */
    private static function answer(callable $load): void
    {
        $log = Log::begin();
        $ended = false;
        // Who closes buffers that are not his, or ends the request, sends something else as the answer: that must not pass for one.
        header_register_callback(static function () use (&$ended): void {
            if (!$ended) {
                http_response_code(500);
                header('Lambda-Runtime-Function-Error-Type: Function.OutputSent');
            }
        });
        register_shutdown_function(static function () use (&$ended, $log): void {
            if (!$ended) {
                $ended = true;
                $log->end();
                self::send(self::unfinished());
            }
        });
        try {
            $answer = self::ask($load());
        } catch (\Throwable $thrown) {
            $log->end();
            Log::line("PHP Fatal error:  Uncaught $thrown");
            $answer = Answer::error($thrown);
        }
        $ended = true;
        $log->end();
        self::send($answer);
    }

    private static function ask(Handler $handler): Answer
    {
        // What Surus says of the event: an HTTP request, or the event that one has come as; nothing of any other that is Lambda's.
        $kind = $_SERVER['SURUS_EVENT'] ?? null;
        if ('before_snapshot' === $kind || 'after_restore' === $kind) {
            Hook::run($kind);

            return new Answer('', 204);
        }
        if ('url' === $kind && !$handler->takesRequests) {
            throw new \LogicException("$_SERVER[REQUEST_URI] is a URL, and this function has none: its handler is not one of PSR-15, and there is no application beside it. What may help: no before_snapshot and after_restore in [lambda], and in the handler's file Surus\Lambda\Hook::beforeSnapshot(…) and Surus\Lambda\Hook::afterRestore(…).");
        }
        Hook::begin();
        if ('http' === $kind && $handler->takesRequests) {
            return new Answer('', 204, ['Surus-Takes' => 'requests']);
        }
        $event = \in_array($kind, ['request', 'url'], true) && $handler->takesRequests ? null : self::event();
        $answer = $handler->handle($event, Context::current());

        return $answer instanceof Answer ? $answer : new Answer(self::encode($answer));
    }

    private static function event(): mixed
    {
        $event = file_get_contents('php://input');
        try {
            // Numbers that PHP has no integer for keep their digits.
            return json_decode($event, true, 512, \JSON_THROW_ON_ERROR | \JSON_BIGINT_AS_STRING);
        } catch (\JsonException $e) {
            throw new \UnexpectedValueException(\sprintf('The event is not JSON (%s): %s', $e->getMessage(), substr($event, 0, 100)), 0, $e);
        }
    }

    private static function encode(mixed $result): string
    {
        try {
            return json_encode($result, self::JSON);
        } catch (\JsonException $e) {
            throw new \UnexpectedValueException(\sprintf('The handler has returned a value (%s) that JSON cannot say: %s. Binary data must be encoded first, as with base64_encode().', get_debug_type($result), $e->getMessage()), 0, $e);
        }
    }

    /** Why a handler has neither returned nor thrown. */
    private static function unfinished(): Answer
    {
        $error = error_get_last();
        $fatal = \E_ERROR | \E_CORE_ERROR | \E_COMPILE_ERROR | \E_USER_ERROR | \E_RECOVERABLE_ERROR | \E_PARSE;
        if ($error && $error['type'] & $fatal) {
            return Answer::failure('FatalError', 'FatalError', $error['message'], ["$error[file]:$error[line]"]);
        }

        return Answer::failure('Exit', 'Exit', 'The handler has called exit(), and so returned nothing.', []);
    }

    private static function send(Answer $answer): void
    {
        if (headers_sent($file, $line)) {
            Log::line("surus: the event has failed, as something has been sent before its answer ($file:$line). What may help: no fastcgi_finish_request(), no ob_end_clean() or ob_end_flush() of buffers that others have begun.");

            return;
        }
        http_response_code($answer->status);
        foreach ($answer->headers as $name => $values) {
            foreach ((array) $values as $number => $value) {
                // The first of a name replaces what PHP has set, such as its own Content-Type; a session's cookie stays.
                header("$name: $value", 0 === $number && 0 !== strcasecmp($name, 'set-cookie'), $answer->status);
            }
        }
        echo $answer->body;
    }
}
