<?php

namespace Surus;

/** Writes the URLs of servers for `surus work`. */
final class ServerUrl
{
    /** @param array<string, string> $options */
    public static function database(
        string $scheme,
        string $host,
        int $port,
        string $user,
        string $password,
        string $database,
        array $options = []
    ): string
    {
        return \sprintf('%s://%s%s:%d/%s%s', $scheme, self::access(
            $user,
            $password
        ), self::host($host), $port,
            rawurlencode($database), $options
                ? '?'.http_build_query($options, '', '&', \PHP_QUERY_RFC3986)
                : '');
    }

    public static function redis(
        bool $tls,
        string $host,
        int $port,
        string $user,
        string $password,
        int $database
    ): string
    {
        return \sprintf(
            '%s://%s%s:%d/%d',
            $tls ? 'rediss' : 'redis',
            self::access($user, $password),
            self::host($host),
            $port,
            $database
        );
    }

    public static function amqp(
        bool $tls,
        string $host,
        int $port,
        string $user,
        string $password,
        string $vhost
    ): string
    {
        return \sprintf('%s://%s%s:%d/%s', $tls ? 'amqps' : 'amqp', self::access(
            $user,
            $password
        ), self::host($host), $port,
            rawurlencode('' !== $vhost ? $vhost : '/'));
    }

    public static function redisSocket(
        string $socket,
        string $user,
        string $password,
        int $database
    ): string
    {
        return "redis+unix://$socket?db=$database"
            .('' !== $user ? '&user='.rawurlencode($user) : '')
            .('' !== $password ? '&pass='.rawurlencode($password) : '');
    }

    private static function access(string $user, string $password): string
    {
        return '' !== $user.$password ? rawurlencode($user).':'.rawurlencode($password).'@' : '';
    }

    /** The host of a URL: a name, an address, or the directory of a socket. */
    private static function host(string $host): string
    {
        return match (true) {
            str_starts_with($host, '/') => rawurlencode($host),
            str_contains($host, ':') => '['.trim($host, '[]').']',
            default => $host,
        };
    }
}
