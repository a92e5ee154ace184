<?php

namespace Surus;

/** Saves settings of the process that requests change: locale, time zone, encoding, and others. */
final class Process
{
    private readonly string $timeZone;
    private readonly string $encoding;
    private readonly ?string $intl;
    /** Symfony empties it for a response without content, such as 304. */
    private readonly string $type;

    /** @var array<int, string> */
    private array $locale = [];

    public function __construct()
    {
        $this->timeZone = date_default_timezone_get();
        $this->encoding = \function_exists('mb_internal_encoding') ? mb_internal_encoding() : '';
        $this->intl = class_exists(\Locale::class, false) ? \Locale::getDefault() : null;
        $this->type = (string) \ini_get('default_mimetype');
        // PHP has LC_MESSAGES only if it was built with libintl.
        $messages = \defined('LC_MESSAGES') ? [\LC_MESSAGES] : [];
        foreach (
            [\LC_CTYPE, \LC_COLLATE, \LC_MONETARY, \LC_NUMERIC, \LC_TIME, ...$messages] as $category
        ) {
            $this->locale[$category] = (string) setlocale($category, '0');
        }
    }

    public function restore(): void
    {
        date_default_timezone_set($this->timeZone);
        if ('' !== $this->encoding) {
            mb_internal_encoding($this->encoding);
        }
        if (null !== $this->intl) {
            \Locale::setDefault($this->intl);
        }
        $canSet = \function_exists('ini_set');
        if ($canSet && \ini_get('default_mimetype') !== $this->type) {
            ini_set('default_mimetype', $this->type);
        }
        foreach ($this->locale as $category => $locale) {
            if (setlocale($category, '0') !== $locale) {
                setlocale($category, $locale);
            }
        }
    }
}
