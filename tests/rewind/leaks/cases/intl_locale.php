<?php
// intl's default locale.
return [
    'needs' => ['intl'],
    'set' => function () { Locale::setDefault('ja_JP'); },
    'see' => fn () => Locale::getDefault() . (new NumberFormatter(null, NumberFormatter::DECIMAL))->getLocale(),
];
