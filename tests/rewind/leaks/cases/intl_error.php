<?php
// intl's last error.
return [
    'needs' => ['intl'],
    'leaks' => false,
    'why' => 'the end of a request forgets it',
    'set' => function () { @IntlDateFormatter::create('en', 99, 99) ?? null; intl_get_error_code() || grapheme_strlen("\xff"); if (!intl_get_error_code()) { throw new Exception('no error'); } },
    'see' => fn () => intl_get_error_code() . intl_get_error_message(),
];
