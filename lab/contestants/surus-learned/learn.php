<?php
/*
 * Requests pages from three addresses, and waits until Surus has learned them:
 * learn.php PORT ADMIN_SOCKET PAGES REQUESTS, with PAGES as JSON.
 */

declare(strict_types=1);

const LONGEST = 120;

[, $port, $admin, $pages, $requests] = $argv;
$pages = json_decode($pages, true, flags: JSON_THROW_ON_ERROR);

// Each page gets as many requests from each address.
for ($number = 0; $number < (int) $requests; ++$number) {
    $page = $pages[$number % count($pages)];
    $address = '127.0.0.'.(2 + intdiv($number, count($pages)) % 3);
    $http = ['ignore_errors' => true, 'follow_location' => 0, 'timeout' => 30];
    $context = stream_context_create(['socket' => ['bindto' => "$address:0"], 'http' => $http]);
    $body = file_get_contents("http://127.0.0.1:$port$page", context: $context);
    if (false === $body || !str_contains($http_response_header[0], ' 200')) {
        fail("$page: ".($http_response_header[0] ?? 'no response'));
    }
}
$deadline = time() + LONGEST;
do {
    usleep(100_000);
    $metrics = metrics($admin);
    $learned = value($metrics, 'surus_warm_up_pages\{[^}]*source="learned"[^}]*\}');
    $left_out = value($metrics, 'surus_warm_up_pages_left_out\{[^}]*\}');
} while ($learned + $left_out < count($pages) && time() < $deadline);
// A page that is left out is measured as it is; without any, this is no learned boot.
if (!$learned) {
    fail('no page was learned in '.LONGEST." s; $left_out were left out");
}
echo "$learned learned, $left_out left out\n";

function fail(string $why): never
{
    echo "$why\n";
    exit(1);
}

function metrics(string $admin): string
{
    $socket = stream_socket_client("unix://$admin", $code, $error, 5);
    $socket || fail("cannot connect to $admin: $error");
    fwrite($socket, "GET /-/metrics HTTP/1.1\r\nHost: surus\r\nConnection: close\r\n\r\n");

    return stream_get_contents($socket);
}

function value(string $metrics, string $series): int
{
    preg_match_all("/^$series (\\d+)/m", $metrics, $found);

    return array_sum(array_map('intval', $found[1]));
}
