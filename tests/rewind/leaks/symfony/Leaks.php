<?php

namespace App\Controller;

use Symfony\Component\HttpFoundation\JsonResponse;
use Symfony\Component\HttpFoundation\Response;

/** Runs one step of one case of the leak corpus. */
final class Leaks
{
    private static array $cases;
    private static array $boot;

    /** Creates the boot state of the cases that LEAKS names, or of all. */
    public static function boot(): void
    {
        require_once \dirname(__DIR__, 2).'/leaks/play.php';
        self::$cases = leak_cases(getenv('LEAKS') ? explode(',', getenv('LEAKS')) : leak_names());
        self::$boot = array_map(leak_boot(...), self::$cases);
    }

    public function list(): Response
    {
        return new JsonResponse(leak_list(self::$cases), 200, [], true);
    }

    public function play(string $case, string $step): Response
    {
        $_GET['step'] = $step;
        leak_play(self::$cases[$case], self::$boot[$case]);

        return new Response();
    }
}
