<?php

namespace Surus\Lambda;

/** The response to an event. */
final readonly class Answer
{
    /** @param array<string, string|list<string>> $headers a list sends one line per value */
    public function __construct(
        /** JSON for Lambda. */
        public string $body,
        public int $status = 200,
        public array $headers = ['Content-Type' => 'application/json'],
    ) {
    }

    /**
     * Lambda's form of an exception.
     *
     * @param array<string, mixed> $more as in failure()
     */
    public static function error(\Throwable $thrown, array $more = []): self
    {
        $stack = [];
        for ($e = $thrown; $e; $e = $e->getPrevious()) {
            if ($e !== $thrown) {
                $stack[] = \sprintf('caused by %s: %s', get_debug_type($e), $e->getMessage());
            }
            $stack[] = $e->getFile().':'.$e->getLine();
            array_push($stack, ...explode("\n", $e->getTraceAsString()));
        }

        return self::failure(
            self::short($thrown),
            get_debug_type($thrown),
            $thrown->getMessage(),
            $stack,
            $more
        );
    }

    /**
     * @param list<string>         $stack
     * @param array<string, mixed> $more  in addition to the fields of Lambda's error object
     */
    public static function failure(
        string $name,
        string $type,
        string $message,
        array $stack,
        array $more = []
    ): self
    {
        $error = ['errorMessage' => $message, 'errorType' => $type, 'stackTrace' => $stack] + $more;

        return new self(
            json_encode(
                $error,
                \JSON_UNESCAPED_SLASHES
                    | \JSON_UNESCAPED_UNICODE
                    | \JSON_INVALID_UTF8_SUBSTITUTE
                    | \JSON_PARTIAL_OUTPUT_ON_ERROR
            ),
            500,
            [
                'Content-Type' => 'application/json',
                'Lambda-Runtime-Function-Error-Type' => "Function.$name"
            ],
        );
    }

    /**
     * The class name in the form that Lambda accepts: a capital and further letters. Lambda reports
     * anything else as unknown.
     */
    private static function short(\Throwable $thrown): string
    {
        // An anonymous class has its parent's name before the @.
        $class = explode('@', get_debug_type($thrown))[0];
        $letters = preg_replace('/[^A-Za-z]/', '', substr((string) strrchr("\\$class", '\\'), 1));

        return \strlen($letters) < 2 || 'class' === $letters ? 'Exception' : ucfirst($letters);
    }
}
