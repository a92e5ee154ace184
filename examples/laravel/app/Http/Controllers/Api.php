<?php

namespace App\Http\Controllers;

use Illuminate\Http\JsonResponse;
use Illuminate\Http\Request;

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
                'method' => $request->method(),
                'query' => $request->query(),
                'body' => $request->json()->all()
            ]
        );
    }
}
