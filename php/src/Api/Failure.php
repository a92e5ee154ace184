<?php

namespace Surus\Api;

/** Turns what was thrown into a response, and logs what the client must not see. */
final class Failure
{
    public function __construct(private readonly bool $development)
    {
    }

    public function response(\Throwable $thrown): Response
    {
        if ($thrown instanceof Problem) {
            return $thrown->response();
        }
        error_log("PHP Fatal error:  Uncaught $thrown");

        return $this->internal(
            $thrown->getMessage(),
            $thrown::class,
            $thrown->getFile(),
            $thrown->getLine(),
            $thrown->getTraceAsString()
        );
    }

    /** For a handler that has neither returned nor thrown. */
    public function unfinished(): Response
    {
        $error = error_get_last();
        $fatal = \E_ERROR
            | \E_CORE_ERROR
            | \E_COMPILE_ERROR
            | \E_USER_ERROR
            | \E_RECOVERABLE_ERROR
            | \E_PARSE;
        if ($error && $error['type'] & $fatal) {
            // PHP has logged it.
            return $this->internal(
                $error['message'],
                'fatal error',
                $error['file'],
                $error['line'],
                ''
            );
        }
        error_log(
            "surus: the handler of $_SERVER[REQUEST_METHOD] $_SERVER[REQUEST_URI] called exit() and returned nothing; return a response instead"
        );

        return $this->internal('the handler called exit() and returned nothing', 'exit', '', 0, '');
    }

    private function internal(
        string $message,
        string $exception,
        string $file,
        int $line,
        string $trace
    ): Response
    {
        $body = ['type' => 'about:blank', 'title' => Problem::TITLES[500], 'status' => 500];
        if ($this->development) {
            $body += [
                'detail' => $message,
                'exception' => $exception,
                'at' => "$file:$line",
                'trace' => explode("\n", $trace)
            ];
        }

        return Response::problem($body, 500);
    }
}
