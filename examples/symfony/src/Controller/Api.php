<?php

namespace App\Controller;

use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\StreamedResponse;

final class Api
{
    public function hello(): JsonResponse
    {
        return new JsonResponse(['hello' => 'world']);
    }

    public function echo(Request $request): JsonResponse
    {
        return new JsonResponse(
            [
                'method' => $request->getMethod(),
                'query' => $request->query->all(),
                'body' => $request->toArray()
            ]
        );
    }

    /** Sends line after line, as exports do. */
    public function rows(int $count): StreamedResponse
    {
        return new StreamedResponse(static function () use ($count): void {
            for ($row = 1; $row <= $count; ++$row) {
                echo json_encode(['row' => $row]), "\n";
                if (0 === $row % 1000) {
                    flush();
                }
            }
        }, 200, ['Content-Type' => 'application/x-ndjson']);
    }
}
