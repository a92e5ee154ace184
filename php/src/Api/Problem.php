<?php

namespace Surus\Api;

/** An error for the client, sent as `application/problem+json` (RFC 9457). */
final class Problem extends \RuntimeException
{
    public const TITLES = [
        400 => 'Bad Request',
        401 => 'Unauthorized',
        403 => 'Forbidden',
        404 => 'Not Found',
        405 => 'Method Not Allowed',
        409 => 'Conflict',
        410 => 'Gone',
        412 => 'Precondition Failed',
        413 => 'Content Too Large',
        414 => 'URI Too Long',
        415 => 'Unsupported Media Type',
        422 => 'Unprocessable Content',
        429 => 'Too Many Requests',
        500 => 'Internal Server Error',
        503 => 'Service Unavailable',
    ];

    /**
     * @param list<array<string, string>> $errors  what is wrong with the input, each with its
     *                                             `detail` and its `pointer` or `parameter`
     * @param array<string, string>       $headers
     */
    public function __construct(
        public readonly int $status,
        public readonly string $detail = '',
        public readonly array $errors = [],
        public readonly array $headers = [],
        public readonly string $type = 'about:blank',
        public readonly ?string $title = null,
    ) {
        parent::__construct($detail ?: (self::TITLES[$status] ?? "HTTP status $status"));
    }

    public function response(): Response
    {
        $title = $this->title ?? self::TITLES[$this->status] ?? "Status $this->status";
        $body = ['type' => $this->type, 'title' => $title, 'status' => $this->status]
            + ('' === $this->detail ? [] : ['detail' => $this->detail])
            + ($this->errors ? ['errors' => $this->errors] : []);

        return Response::problem($body, $this->status, $this->headers);
    }
}
