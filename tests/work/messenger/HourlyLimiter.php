<?php

// Stands for Symfony's component RateLimiter, with a limit of one message an hour.

namespace Symfony\Component\RateLimiter\Exception {
    final class MaxWaitDurationExceededException extends \RuntimeException
    {
        public function __construct(private readonly object $limit)
        {
            parent::__construct('the wait is too long');
        }

        public function getRateLimit(): object
        {
            return $this->limit;
        }
    }
}

namespace Symfony\Component\RateLimiter {
    interface LimiterInterface
    {
    }
}

namespace App {
    use Symfony\Component\RateLimiter\Exception\MaxWaitDurationExceededException;
    use Symfony\Component\RateLimiter\LimiterInterface;

    /** Factory, limiter and limit in one. */
    final class HourlyLimiter implements LimiterInterface
    {
        private bool $isAccepted = false;

        public function create(): self
        {
            return $this;
        }

        public function consume(int $tokens = 1): self
        {
            $this->isAccepted = 0 === $tokens
                || !is_dir($token = getenv('NOTES').'.token') && mkdir($token);

            return $this;
        }

        public function getRemainingTokens(): int
        {
            return is_dir(getenv('NOTES').'.token') ? 0 : 1;
        }

        public function reserve(int $tokens = 1, ?float $maxTime = null): never
        {
            null === $maxTime ? sleep(3600) : throw new MaxWaitDurationExceededException($this);
        }

        public function isAccepted(): bool
        {
            return $this->isAccepted;
        }

        public function getRetryAfter(): \DateTimeImmutable
        {
            return new \DateTimeImmutable('+1 hour');
        }
    }
}
