<?php

namespace App;

use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Response;

final class LastWords
{
    public static string $said = 'nothing';

    public function __construct(private string $word)
    {
    }

    public function __destruct()
    {
        self::$said = $this->word;
    }
}

final class Memory
{
    public static ?self $boot = null;
    public static ?\DateTime $time = null;
    public static string $word = 'boot';
    public static int $uninitialized;
    public static array $nested = [];
    public array $seen = ['boot'];
    public ?string $typed;
    public readonly string $once;
    public \Closure $counter;
    public object $free;

    public static function boot(): void
    {
        self::$boot = new self();
        self::$boot->prepare();
        self::$time = new \DateTime('2000-01-01');
        Hidden::$boot = new \ArrayObject();
    }

    private function prepare(): void
    {
        $this->free = (object) ['seen' => 'boot'];
        $captured = 'boot';
        $this->counter = function (?string $new = null) use (&$captured) {
            static $calls = 'boot';
            $calls = $new ?? $calls;
            $captured = $new ?? $captured;

            return [$calls, $captured];
        };
        $inner = 'boot';
        self::$nested = ['inner' => &$inner];
        self::variable();
    }

    public static function variable(?string $new = null): string
    {
        static $variable = 'boot';
        $variable = $new ?? $variable;

        return $variable;
    }

    public static function lateVariable(?string $new = null): string
    {
        static $variable = self::class.' late';
        $variable = $new ?? $variable;

        return $variable;
    }

    public function store(Request $request): Response
    {
        $seen = implode(' ', ['visitor', $request->getHost(), $request->getPathInfo(),
            $request->headers->get('accept-language'), json_encode($request->cookies->all())]);
        self::$word = $seen;
        self::$uninitialized = 1;
        self::$nested['inner'] = $seen;
        self::variable($seen);
        self::lateVariable($seen);
        self::$boot->seen[] = $seen;
        self::$boot->typed = $seen;
        self::$boot->once = $seen;
        self::$boot->free->seen = $seen;
        self::$boot->free->more = $seen;
        (self::$boot->counter)($seen);
        Late::$typed = $seen;
        Late::$list[$seen] = &self::$boot->typed;
        Late::$object = new \ArrayObject([$seen]);
        Late::$default = $seen;
        $GLOBALS['visitor'] = $seen;
        $word = new LastWords($seen);
        $word->cycle = $word;
        ini_set('user_agent', $seen);

        return new Response('stored');
    }

    public function show(): Response
    {
        $once = isset(self::$boot->once) ? self::$boot->once : 'unset';

        return new Response(json_encode([self::$word, isset(self::$uninitialized), self::$nested,
            self::variable(), self::lateVariable(), self::$boot->seen,
            (new \ReflectionProperty(self::class, 'typed'))->isInitialized(self::$boot), $once,
            self::$boot->free, (self::$boot->counter)(),
            (new \ReflectionProperty(Late::class, 'typed'))->isInitialized(), Late::$list,
            Late::$object, Late::$default, isset($GLOBALS['visitor']), LastWords::$said,
            ini_get('user_agent')]));
    }

    public function constant(Request $request): Response
    {
        \defined('VISITOR') || define('VISITOR', $request->getHost());

        return new Response('a constant');
    }

    public function hidden(Request $request): Response
    {
        Hidden::$boot[] = $request->getHost();

        return new Response('a list of PHP');
    }
}

final class Hidden
{
    public static ?\ArrayObject $boot = null;
}
