<?php

/** PHP's functions of requests and responses that its CLI lacks, or has without their effect. */
namespace {

    use Surus\Cli\{Cookie, Fields, Head, Request, Settings, Uploads};

    function header(string $header, bool $replace = true, int $response_code = 0): void
    {
        Head::put($header, $replace, $response_code);
    }

    function header_remove(?string $name = null): void
    {
        Head::remove($name);
    }

    function headers_list(): array
    {
        return Head::lines();
    }

    // Accepts null, as PHP's own functions do.
    function setcookie(
        string $name,
        ?string $value = '',
        array|int|null $expires_or_options = 0,
        ?string $path = '',
        ?string $domain = '',
        ?bool $secure = false,
        ?bool $httponly = false,
    ): bool {
        $options = compact(
            'path',
            'domain',
            'secure',
            'httponly'
        ) + ['expires' => $expires_or_options];
        return Cookie::set(__FUNCTION__, $name, (string) $value, $options, func_num_args());
    }

    function setrawcookie(
        string $name,
        ?string $value = '',
        array|int|null $expires_or_options = 0,
        ?string $path = '',
        ?string $domain = '',
        ?bool $secure = false,
        ?bool $httponly = false,
    ): bool {
        $options = compact(
            'path',
            'domain',
            'secure',
            'httponly'
        ) + ['expires' => $expires_or_options];
        return Cookie::set(__FUNCTION__, $name, (string) $value, $options, func_num_args());
    }

    function is_uploaded_file(string $filename): bool
    {
        return Uploads::has($filename);
    }

    function move_uploaded_file(string $from, string $to): bool
    {
        return Uploads::move($from, $to);
    }

    if (PHP_VERSION_ID >= 80400) {
        function request_parse_body(?array $options = null): array
        {
            Settings::set($options ?? []);
            rewind(STDIN);
            $form = Fields::body(Request::variable('CONTENT_TYPE'));
            if ($form === []) {
                throw new RequestParseBodyException(
                    'The request has no form of a type that is known'
                );
            }
            return [$form['post'], $form['files'] ?? []];
        }
    }

    function getallheaders(): array
    {
        return Request::headers();
    }

    function apache_request_headers(): array
    {
        return Request::headers();
    }

    function apache_response_headers(): array
    {
        $headers = [];
        foreach (Head::lines() as $line) {
            [$name, $value] = explode(':', $line, 2) + [1 => ''];
            $headers[$name] = ltrim($value);
        }
        return $headers;
    }
}
