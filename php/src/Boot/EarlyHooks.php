<?php

namespace Surus\Boot;

/** Names plugins of WordPress that look for the request on hooks which run in the boot. */
final class EarlyHooks
{
    private const HOOKS = ['muplugins_loaded', 'plugins_loaded', 'setup_theme'];

    /** Code that looks at the URL of the request. */
    private const READS = '~\$pagenow\b|[\'"](?:REQUEST_URI|pagenow)[\'"]~';

    /** How many plugins are named. */
    private const MOST = 5;

    /**
     * Only the file of a callback is searched. Most large plugins have such code somewhere, and run
     * it later.
     */
    public static function report(): void
    {
        $named = [];
        foreach (self::files() as $file => $hook) {
            $name = plugin_basename($file);
            $plugin = strtok($name, '/');
            if (isset($named[$plugin]) || $name === trim(wp_normalize_path($file), '/')) {
                continue;
            }
            if (preg_match(self::READS, php_strip_whitespace($file))) {
                $named[$plugin] = "surus: the plugin file $name has code on $hook, and looks at "
                    .'the URL of the request; the boot runs this hook once, without a request, '
                    .'and the engine `classic` (engine.name) runs it for each request';
            }
        }
        array_map(error_log(...), \array_slice(array_values($named), 0, self::MOST));
    }

    /** @return array<string, string> files with callbacks, and the first hook of each */
    private static function files(): array
    {
        $files = [];
        foreach (self::HOOKS as $hook) {
            foreach ($GLOBALS['wp_filter'][$hook]->callbacks ?? [] as $callbacks) {
                $calls = array_column($callbacks, 'function');
                foreach (array_filter($calls, 'is_callable') as $call) {
                    $function = new \ReflectionFunction(\Closure::fromCallable($call));
                    $file = (string) $function->getFileName();
                    if (is_file($file)) {
                        $files[$file] ??= $hook;
                    }
                }
            }
        }

        return $files;
    }
}
