<?php
// Runs one step of one case in a request, on every engine.

// The directory of this run that cases may write to; a sibling of the document root.
define('LEAK_STATE', dirname(__DIR__) . '/state');

/** Reads the cases of these names. */
function leak_cases(array $names): array
{
    $cases = [];
    foreach ($names as $name) {
        $case = require __DIR__ . "/cases/$name.php";
        $case['missing'] = array_values(array_filter($case['needs'] ?? [], fn ($name) => !extension_loaded($name)));
        $cases[$name] = $case;
    }
    return $cases;
}

/** The names of all cases. */
function leak_names(): array
{
    return array_map(fn ($file) => basename($file, '.php'), glob(__DIR__ . '/cases/*.php'));
}

/** Creates the case's state at boot. */
function leak_boot(array $case): mixed
{
    return $case['missing'] || !isset($case['boot']) ? null : ($case['boot'])();
}

/** The properties of the cases for the test runner. */
function leak_list(array $cases): string
{
    $word = fn ($case, $name, $default) => $case[$name] ?? $default;
    return json_encode(array_map(fn ($case) => [
        'leaks' => $word($case, 'leaks', true),
        'why' => $word($case, 'why', null),
        'survives' => $word($case, 'survives', null),
        'missing' => $case['missing'],
        'ends' => $word($case, 'ends', false),
        'slow' => $word($case, 'slow', false) || $word($case, 'heavy', false),
        'is' => $word($case, 'is', null),
        'clean' => isset($case['clean']),
        'send' => (object) $word($case, 'send', []),
    ], $cases), JSON_THROW_ON_ERROR);
}

/** The open descriptors, without numbers from the kernel and random names of temporary files. */
function leak_descriptors(): string
{
    // OPcache's lock has a random name, too.
    // PHP keeps the script itself open until OPcache has cached it.
    // Surus fills gaps between descriptors with /dev/null: not the same ones at each fork.
    $script = preg_replace('/\d+/', 'N', $_SERVER['SCRIPT_FILENAME']);
    $open = array_map(fn ($fd) => preg_replace(['~/php\w{6,}$~', '~/\.ZendSem\.\w+~', '/\d+/'], 'N', (string) @readlink("/proc/self/fd/$fd")), scandir('/proc/self/fd'));
    $open = array_filter($open, fn ($name) => !in_array($name, ['', '/dev/null'], true) && !str_starts_with($name, '/proc/') && $name !== $script);
    sort($open);
    return implode(' ', $open);
}

/** Responds to the request. */
function leak_play(array $case, mixed $boot): void
{
    switch ($_GET['step']) {
        case 'set':
            ($case['set'])($boot);
            echo 'set';
            break;
        case 'see':
            $text = ($case['see'])($boot);
            // Lets the runner notice the replacement of a worker.
            header('X-Worker: ' . getmypid());
            echo $text;
            break;
        case 'clean':
            ($case['clean'])($boot);
            break;
    }
}
