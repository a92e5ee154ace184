<?php

namespace Surus\Boot;

/** The translations that the boot of WordPress loads, for requests in another language. */
final class Translations
{
    public const PRIORITY = 0;

    /** @var list<array{mixed, mixed}> text domains and files, also of files that do not exist */
    private array $files = [];

    /** WordPress calls it before it loads a file (`load_textdomain`). */
    public function __invoke(mixed $domain, mixed $file): void
    {
        $this->files[] = [$domain, $file];
    }

    /** The boot has ended. */
    public function save(): void
    {
        remove_action('load_textdomain', $this, self::PRIORITY);
    }

    /**
     * Replaces those of the boot's language by those of the request's, as WordPress does when it
     * switches to another language. It does not know all places of files, so those of the boot are
     * tried, too.
     */
    public function load(string $before): void
    {
        $now = determine_locale();
        load_default_textdomain();
        foreach (array_diff(array_keys($GLOBALS['l10n'] ?? []), ['default']) as $domain) {
            unload_textdomain($domain, true);
            // WordPress before 6.1 would not load it again.
            unset($GLOBALS['l10n_unloaded'][$domain]);
        }
        // The file of load_default_textdomain().
        $cores = WP_LANG_DIR."/$before.mo";
        foreach ($this->files as [$domain, $file]) {
            if (\is_string($file) && ('default' !== $domain || $cores !== $file)) {
                load_textdomain($domain, self::translated($file, $before, $now));
            }
        }
        // restore_previous_locale() returns to this language.
        $set = static function (\WP_Locale_Switcher $switcher) use ($now): void {
            $switcher->original_locale = $now;
        };
        \Closure::bind($set, null, \WP_Locale_Switcher::class)($GLOBALS['wp_locale_switcher']);
    }

    /** The name of the file for another language: `a-de_DE.mo` for `a-fr_FR.mo`. */
    private static function translated(string $file, string $before, string $now): string
    {
        $stem = substr($file, 0, -\strlen("$before.mo"));
        $isOfLanguage = str_ends_with($file, "$before.mo") && preg_match('~[-_./]$~D', $stem);

        return $isOfLanguage ? "$stem$now.mo" : $file;
    }
}
