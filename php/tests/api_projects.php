<?php

// Tests that surus-api creates a project that runs.

$run = static function (string ...$command): array {
    $process = proc_open(
        [PHP_BINARY, ...$command],
        [1 => ['pipe', 'w'], 2 => ['redirect', 1]],
        $pipes,
        null,
        ['PATH' => '/none']
    );
    $output = stream_get_contents($pipes[1]);

    return [proc_close($process), $output];
};
$program = dirname(__DIR__).'/bin/surus-api';
$remove = static function (string $directory) use (&$remove): void {
    foreach (array_diff(scandir($directory), ['.', '..']) as $entry) {
        is_dir("$directory/$entry") ? $remove("$directory/$entry") : unlink("$directory/$entry");
    }
    rmdir($directory);
};

return [
    'new project passes its tests without Composer' => static function () use (
        $run,
        $program,
        $remove
    ): void {
        $base = sys_get_temp_dir().'/surus-api-'.getmypid();
        try {
            [$status, $output] = $run($program, 'new', "$base/My Über_API");
            same([0, true], [$status, str_contains($output, 'Composer is not installed')]);
            [$status, $output] = $run("$base/My Über_API/tests/run.php");
            same([0, 3], [$status, substr_count($output, 'ok ')]);
            same(
                'app/my-ber-api',
                json_decode(
                    file_get_contents("$base/My Über_API/composer.json"),
                    true,
                    flags: JSON_THROW_ON_ERROR
                )['name']
            );
            // Composer finds the package, which no registry has.
            $composer = json_decode(file_get_contents("$base/My Über_API/composer.json"), true);
            [$repository] = $composer['repositories'] ?? [[]];
            same(
                ['path', '@dev'],
                [$repository['type'] ?? '', $composer['require']['surus/surus']]
            );
            $package = json_decode(
                file_get_contents("$base/My Über_API/$repository[url]/composer.json"),
                true
            );
            same('surus/surus', $package['name']);
            foreach (
                [...array_values($package['autoload']['psr-4']), ...$package['bin']] as $part
            ) {
                same(true, file_exists("$base/My Über_API/$repository[url]/$part"));
            }
            same("/vendor\n", file_get_contents("$base/My Über_API/.gitignore"));
            [$status, $output] = $run($program, 'new', $base);
            same([1, true], [$status, str_contains($output, 'is not an empty directory')]);
        } finally {
            $remove($base);
        }
    },
    'wrong command line gets a usage' => static function () use ($run, $program): void {
        foreach ([[], ['new'], ['old', 'x'], ['new', '--help'], ['new', 'a', 'b']] as $arguments) {
            same([2, "usage: surus-api new DIRECTORY\n"], $run($program, ...$arguments));
        }
    },
];
