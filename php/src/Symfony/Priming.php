<?php

namespace Surus\Symfony;

use Surus\Fingerprint;
use Surus\Process;
use Surus\Warmup;
use Symfony\Component\DependencyInjection\Container;
use Symfony\Component\EventDispatcher\EventDispatcher;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpFoundation\Session\Session;
use Symfony\Component\HttpFoundation\Session\Storage\MockArraySessionStorage;
use Symfony\Component\HttpKernel\Kernel;
use Symfony\Component\Routing\Router;
use Symfony\Component\Security\Core\Authentication\Token\Storage\TokenStorageInterface;
use Symfony\Component\Security\Core\Authentication\Token\UsernamePasswordToken;
use Symfony\Component\Security\Core\User\InMemoryUser;
use Symfony\Component\Translation\Translator;

/**
 * Creates in the serving kernel, by their names, the services that warm-ups have needed in another
 * one. Nothing of a request is in them: a service whose constructor depends on the request, on the
 * time or on random numbers is left out.
 */
final class Priming
{
    /** Rounds in which services are left out; after that, none is created. */
    private const ROUNDS = 6;

    /**
     * Seconds by which the clock goes wrong for the first visitor: another year, month, day, hour,
     * minute and second. Into the past, where nothing that is stored expires.
     */
    private const OTHER_TIME = -(400 * 86_400 + 5 * 3_600 + 7 * 60 + 11);

    /** The browser of the second visitor. */
    private const PHONE =
        'Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) Mobile/15E148 Safari/604.1';

    /** Characters of the names of PHP's classes. */
    private const NAME = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_\\';

    /** They hold requests, or are the kernel itself. */
    private const NEVER = ['kernel', 'request_stack', 'service_container'];

    /** Functions that tell what the constructor of a service does. */
    private const FUNCTIONS = ['ini_get_all', 'ini_set', 'readlink', 'scandir'];

    /** Properties that are created when they are first used. */
    private const PARTS = [
        EventDispatcher::class => ['optimized'],
        Router::class => ['matcher', 'generator'],
        Translator::class => ['catalogues'],
    ];

    /** @var array<string, string> why, by service */
    private array $leftOut = [];

    private readonly Listeners $listeners;

    /** @param array<string, array<mixed>> $names of services, and of their parts by service */
    private function __construct(private readonly array $names)
    {
        $this->listeners = new Listeners($names['optimized'] ?? []);
    }

    /**
     * Notes what exists in a kernel that has handled the warm-ups. Null where nothing tells which
     * services connect to servers or change settings: a boot must not leave a connection open.
     */
    public static function of(Kernel $used): ?self
    {
        $missing = array_filter(
            self::FUNCTIONS,
            static fn (string $name) => !\function_exists($name)
        );
        if ($missing) {
            Warmup::report([
                'no service is created ahead, because disable_functions has '
                    .implode(', ', $missing)
            ]);

            return null;
        }
        if (null === self::connections()) {
            return null;
        }
        $container = $used->getContainer();
        $all = self::services($container);
        $names = ['services' => array_values(array_diff(array_keys($all), self::NEVER))];
        foreach ($all as $id => $service) {
            foreach (self::PARTS as $class => $parts) {
                foreach ($service instanceof $class ? $parts : [] as $part) {
                    $names[$part][$id] = self::namesOf(self::read($service, $class, $part));
                }
            }
        }

        return new self($names);
    }

    /**
     * Creates the services in a kernel that has handled no request. It is booted again for that.
     */
    public function apply(Kernel $kernel): void
    {
        $begun = hrtime(true);
        $visitors = [$this->rehearse($kernel, 'a'), $this->rehearse($kernel, 'b')];
        Warmup::restoreBoot();
        for ($round = 1; $round <= self::ROUNDS; ++$round) {
            // Bundles may have stored another container in static properties.
            $kernel->shutdown();
            $kernel->boot();
            $before = \count($this->leftOut);
            $this->create($kernel->getContainer());
            $this->compare(self::fingerprints($kernel), ...$visitors);
            if (\count($this->leftOut) === $before) {
                $this->createParts($kernel->getContainer());
                $this->log($kernel, (hrtime(true) - $begun) / 1e6);

                return;
            }
        }
        $kernel->shutdown();
        $kernel->boot();
        Warmup::report([
            'no service is created ahead, because they depend on each other and on the request'
        ]);
    }

    /**
     * Creates the services while one of two different visitors is served, and returns their
     * fingerprints.
     *
     * @return array<string, string>
     */
    private function rehearse(Kernel $kernel, string $visitor): array
    {
        $kept = [$_SERVER, $_GET, $_POST, $_COOKIE, $_REQUEST];
        $process = new Process();
        // The first one, so that what a static property keeps of it differs from the serving
        // kernel.
        self::shiftClock('a' === $visitor ? self::OTHER_TIME : 0);
        $probe = clone $kernel;
        $probe->boot();
        $container = $probe->getContainer();
        $secret = $visitor.bin2hex(random_bytes(8));
        $_GET = $_POST = $_COOKIE = $_REQUEST = ['surus' => $secret, session_name() => $secret];
        $url = "://$secret.test/$secret?surus=$secret";
        $request = 'a' === $visitor
            ? self::requestOfGuest("http$url")
            : self::requestOfUser("https$url");
        $_SERVER = $request->server->all() + array_diff_key($kept[0], ['HTTPS' => 'on']);
        try {
            $requests = $container->has('request_stack') ? $container->get('request_stack') : null;
            $requests?->push($request);
            $tokens = 'a' === $visitor ? null : $this->logIn($container, $secret);
            $this->create($container);
            $tokens?->setToken(null);
            $requests?->pop();

            return self::fingerprints($probe);
        } finally {
            [$_SERVER, $_GET, $_POST, $_COOKIE, $_REQUEST] = $kept;
            // The second visitor's locale is a setting of the process, too.
            $process->restore();
            self::shiftClock(0);
            $probe->shutdown();
        }
    }

    private static function requestOfGuest(string $url): Request
    {
        $server = ['REQUEST_SCHEME' => 'http'];

        return Request::create($url, 'GET', [], $_COOKIE, [], $server);
    }

    /** The opposite of a guest's request in all that services usually look at. */
    private static function requestOfUser(string $url): Request
    {
        $request = Request::create($url, 'POST', [], $_COOKIE, [], [
            'HTTP_ACCEPT' => 'application/json',
            'HTTP_ACCEPT_LANGUAGE' => 'de-AT,de;q=0.9',
            'HTTP_USER_AGENT' => self::PHONE,
            'HTTP_X_REQUESTED_WITH' => 'XMLHttpRequest',
            'REMOTE_ADDR' => '198.51.100.7',
            'REQUEST_SCHEME' => 'https',
        ]);
        $request->attributes->set('_locale', 'de');
        $request->setLocale('de');
        $request->setSession(new Session(new MockArraySessionStorage((string) session_name())));

        return $request;
    }

    /** Logs a user in, and returns the storage of the token; null without Symfony's Security. */
    private function logIn(object $container, string $name): ?TokenStorageInterface
    {
        $id = 'security.token_storage';
        if (isset($this->leftOut[$id])) {
            return null;
        }
        $this->try($container, $id, fn () => $this->createOne($container, $id));
        $services = self::services($container);
        // The one inside of it, which does not count uses of the session.
        $tokens = $services['security.untracked_token_storage'] ?? $services[$id] ?? null;
        if (!$tokens instanceof TokenStorageInterface) {
            return null;
        }
        $user = new InMemoryUser($name, null, ['ROLE_USER']);
        $tokens->setToken(new UsernamePasswordToken($user, 'surus', ['ROLE_USER']));

        return $tokens;
    }

    private static function shiftClock(int $seconds): void
    {
        if (\function_exists('surus_shift_clock')) {
            surus_shift_clock($seconds);
        }
    }

    private function create(object $container): void
    {
        foreach ($this->names['services'] as $id) {
            if (!isset($this->leftOut[$id]) && !isset(self::services($container)[$id])) {
                $this->try($container, $id, fn () => $this->createOne($container, $id));
            }
        }
        $this->listeners->create(
            static fn () => self::services($container),
            fn () => $this->leftOut,
            fn (string $id, \Closure $create) => $this->try($container, $id, $create),
        );
    }

    /**
     * Creates a service, and leaves it out if that fails, starts a session, connects or changes
     * settings.
     *
     * @param \Closure(): ?string $create returns the service's name if it has found out
     */
    private function try(object $container, string $id, \Closure $create): void
    {
        $open = self::connections();
        $settings = ini_get_all(null, false);
        try {
            $id = $create() ?? $id;
        } catch (\Throwable $e) {
            $this->leftOut[$id] = $e::class.': '.$e->getMessage();
        }
        if (\PHP_SESSION_ACTIVE === session_status()) {
            session_abort();
            $this->leftOut[$id] = 'it starts a session';
        }
        if (array_diff(self::connections() ?? [], $open ?? [])) {
            $this->leftOut[$id] = 'it connects to a server';
        }
        foreach (array_diff_assoc(ini_get_all(null, false), $settings) as $name => $value) {
            // The end of the warm-up takes it back.
            $this->leftOut[$id] = "it changes the setting $name";
            ini_set($name, (string) $settings[$name]);
        }
        $this->findNeeded($container, $id);
    }

    /** Leaves out what needs a service that is left out. */
    private function findNeeded(object $container, string $id): void
    {
        $needed = array_intersect_key(self::services($container), $this->leftOut);
        unset($needed[$id]);
        if ($needed) {
            $this->leftOut[$id] ??= 'it needs '.array_key_first($needed);
            $needed[$id] = true;
            $remove = static function (Container $container) use ($needed): void {
                $container->services = array_diff_key($container->services, $needed);
                $container->privates = array_diff_key($container->privates, $needed);
            };
            // The next one that needs it creates it again. This container is discarded.
            \Closure::bind($remove, null, Container::class)($container);
        }
    }

    /** Private services come from the container's own factory methods and files. */
    private function createOne(object $container, string $id): null
    {
        if ($container->has($id)) {
            $container->get($id);

            return null;
        }
        $name = strrpos($id, '\\');
        $name = Container::camelize(
            false !== $name && isset($id[1 + $name]) ? substr($id, 1 + $name) : $id
        );
        $method = 'get'.preg_replace('/[^a-zA-Z0-9_\x7f-\xff]/', '', $name).'Service';
        $create = static function (Container $container) use ($method): void {
            if (method_exists($container, $method)) {
                $function = new \ReflectionMethod($container, $method);
                $function->isStatic() ? $container::$method($container) : $container->$method();
            } elseif (isset($container->containerDir)
                && is_file("$container->containerDir/$method.php")) {
                $container->load($method);
            }
        };
        \Closure::bind($create, null, $container::class)($container);

        return null;
    }

    /**
     * @param array<string, string> $served of the services without a request
     * @param array<string, string> $one
     * @param array<string, string> $other
     */
    private function compare(array $served, array $one, array $other): void
    {
        foreach ($served as $id => $fingerprint) {
            if (\in_array($id, self::NEVER, true) || isset($this->leftOut[$id])) {
                continue;
            }
            $others = [$one[$id] ?? $fingerprint, $other[$id] ?? $fingerprint];
            if (str_contains($fingerprint, Fingerprint::TIME)) {
                $this->leftOut[$id] = 'it keeps the time';
            } elseif (false !== $at = strpos($fingerprint, Fingerprint::HIDDEN)) {
                $class = substr($fingerprint, $at + \strlen(Fingerprint::HIDDEN));
                $this->leftOut[$id] = 'PHP does not show what is in its '
                    .substr($class, 0, strspn($class, self::NAME));
            } elseif ([$fingerprint, $fingerprint] !== $others) {
                $this->leftOut[$id] = 'it depends on the request, on the time or on random numbers';
            }
        }
    }

    /** Creates parts of services, none of which is of a request. */
    private function createParts(object $container): void
    {
        $services = self::services($container);
        $this->listeners->replace($services, $this->leftOut);
        $create = [
            'matcher' => static fn (Router $router) => $router->getMatcher(),
            'generator' => static fn (Router $router) => $router->getGenerator(),
            'catalogues' => static fn (
                Translator $translator,
                string $locale
            ) => $translator->getCatalogue($locale),
            'optimized' => \Closure::bind(static function (
                EventDispatcher $dispatcher,
                string $event
            ): void {
                if (
                    !isset($dispatcher->optimized[$event]) && !empty($dispatcher->listeners[$event])
                ) {
                    $dispatcher->optimizeListeners($event);
                }
            }, null, EventDispatcher::class),
        ];
        foreach ($create as $part => $one) {
            foreach ($this->names[$part] ?? [] as $id => $names) {
                foreach (isset($services[$id]) ? $names : [] as $name) {
                    try {
                        $one($services[$id], $name);
                    } catch (\Throwable $e) {
                        $this->leftOut["$id ($part)"] = $e::class.': '.$e->getMessage();
                    }
                }
            }
        }
    }

    /** @return list<string> */
    private static function namesOf(mixed $part): array
    {
        return array_map(
            'strval',
            \is_array($part) ? array_keys($part) : array_filter([\is_object($part) ? 'it' : ''])
        );
    }

    private function log(Kernel $kernel, float $milliseconds): void
    {
        $created = array_intersect_key(
            self::services($kernel->getContainer()),
            array_flip($this->names['services'])
        );
        // Surus reads metrics from this sentence (src/observe/boot_metrics.rs).
        $lines = [
            \sprintf('%d services created ahead in %d ms', \count($created), $milliseconds)
        ];
        foreach ($this->leftOut as $id => $why) {
            $lines[] = "the service $id is created by each request: $why";
        }
        Warmup::report($lines);
    }

    /** @return ?list<string> sockets and pipes of this process */
    private static function connections(): ?array
    {
        $descriptors = @scandir('/proc/self/fd');
        if (!$descriptors) {
            return null;
        }
        $open = array_map(
            static fn (string $number) => (string) @readlink("/proc/self/fd/$number"),
            $descriptors
        );

        return array_values(preg_grep('/^(socket|pipe):/', $open));
    }

    /** @return array<string, string> */
    private static function fingerprints(Kernel $kernel): array
    {
        $container = $kernel->getContainer();

        return Fingerprint::ofServices(
            self::services($container),
            ['service_container' => $container, 'kernel' => $kernel]
        );
    }

    /** @return array<string, object> */
    private static function services(object $container): array
    {
        $all = static fn (
            Container $container
        ): array => $container->services + $container->privates;

        return array_filter(\Closure::bind($all, null, Container::class)($container), 'is_object');
    }

    private static function read(object $object, string $class, string $property): mixed
    {
        return \Closure::bind(
            static fn (object $object) => $object->$property ?? null,
            null,
            $class
        )($object);
    }
}
