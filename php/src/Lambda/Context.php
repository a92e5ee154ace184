<?php

namespace Surus\Lambda;

/** Metadata of an event. */
final readonly class Context
{
    public function __construct(
        public string $awsRequestId = '',
        /** Milliseconds since 1970; 0 if unknown. */
        public int $deadlineMs = 0,
        public string $invokedFunctionArn = '',
        /** The X-Ray trace header. */
        public string $traceId = '',
        /** Sent by callers with a mobile SDK. */
        public ?array $clientContext = null,
        /** The caller's Cognito identity. */
        public ?array $identity = null,
        /** In functions with tenant isolation. */
        public ?string $tenantId = null,
        /**
         * Seconds that the function was frozen before this event; null if it was not. Open
         * connections have probably been closed.
         */
        public ?int $thawed = null,
    ) {
    }

    /** The context of the current event. */
    public static function current(): self
    {
        $said = json_decode(
            (string) ($_SERVER['LAMBDA_INVOCATION_CONTEXT'] ?? getenv('LAMBDA_INVOCATION_CONTEXT')),
            true
        );
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

    /** `$thawed` of the current event. */
    public static function thawed(): ?int
    {
        return isset($_SERVER['SURUS_THAWED']) ? (int) $_SERVER['SURUS_THAWED'] : null;
    }

    /** Milliseconds until the deadline; null if unknown. */
    public function remainingMs(): ?int
    {
        return $this->deadlineMs
            ? max(0, $this->deadlineMs - (int) (microtime(true) * 1000))
            : null;
    }

    // The names that other PHP runtimes use.

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
