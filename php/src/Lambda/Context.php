<?php

namespace Surus\Lambda;

/** What AWS Lambda says of an event beside the event itself. */
final readonly class Context
{
    public function __construct(
        public string $awsRequestId = '',
        /** Milliseconds since 1970; 0 when nobody has said it. */
        public int $deadlineMs = 0,
        public string $invokedFunctionArn = '',
        /** X-Ray's, as the header has it. */
        public string $traceId = '',
        /** What a caller from a mobile SDK has sent. */
        public ?array $clientContext = null,
        /** Who it is to Cognito. */
        public ?array $identity = null,
        /** In functions that isolate tenants. */
        public ?string $tenantId = null,
        /** The seconds that the function was frozen before this event; null when it was not. Connections that were open are likely dead. */
        public ?int $thawed = null,
    ) {
    }

    /** The context of the event in hand. */
    public static function current(): self
    {
        $said = json_decode((string) ($_SERVER['LAMBDA_INVOCATION_CONTEXT'] ?? getenv('LAMBDA_INVOCATION_CONTEXT')), true);
        $said = \is_array($said) ? $said : [];

        return new self(
            (string) ($said['awsRequestId'] ?? ''),
            (int) ($said['deadlineMs'] ?? 0),
            (string) ($said['invokedFunctionArn'] ?? ''),
            (string) ($said['traceId'] ?? ''),
            \is_array($said['clientContext'] ?? null) ? $said['clientContext'] : null,
            \is_array($said['identity'] ?? null) ? $said['identity'] : null,
            isset($said['tenantId']) ? (string) $said['tenantId'] : null,
            self::thawed(),
        );
    }

    /** What `$thawed` of the event in hand is. */
    public static function thawed(): ?int
    {
        return isset($_SERVER['SURUS_THAWED']) ? (int) $_SERVER['SURUS_THAWED'] : null;
    }

    /** How long an answer is still waited for; null when nobody has said it. */
    public function remainingMs(): ?int
    {
        return $this->deadlineMs ? max(0, $this->deadlineMs - (int) (microtime(true) * 1000)) : null;
    }

    // As other runtimes for PHP name them.

    public function getAwsRequestId(): string
    {
        return $this->awsRequestId;
    }

    public function getRemainingTimeInMillis(): int
    {
        return $this->remainingMs() ?? \PHP_INT_MAX;
    }

    public function getInvokedFunctionArn(): string
    {
        return $this->invokedFunctionArn;
    }

    public function getTraceId(): string
    {
        return $this->traceId;
    }
}
