<?php

declare(strict_types=1);

namespace App;

/**
 * Answers a request: status and page. It reads nothing but its arguments, so that tests can call
 * it.
 *
 * @param array<string, mixed> $query
 *
 * @return array{int, string}
 */
function answer(string $method, string $path, array $query): array
{
    if (!in_array($method, ['GET', 'HEAD'], true)) {
        return [405, page('Only GET works here')];
    }
    if ($path !== '/') {
        return [404, page('Not found')];
    }
    $name = $query['name'] ?? 'world';

    return [200, page('Hello '.(is_string($name) ? $name : 'world'))];
}

/** A page with this title. */
function page(string $title): string
{
    $title = htmlspecialchars($title);

    return <<<HTML
        <!doctype html>
        <html lang="en">
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width">
        <title>$title</title>
        <link rel="stylesheet" href="/style.css">
        <h1>$title</h1>
        </html>

        HTML;
}
