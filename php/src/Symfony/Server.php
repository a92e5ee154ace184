<?php

namespace Surus\Symfony;

use Surus\Boot\Failure;
use Surus\Engine;
use Surus\Lambda\Hook;
use Surus\Process;
use Surus\Retained;
use Surus\Warmup;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\HttpKernel\HttpCache\HttpCache;
use Symfony\Component\HttpKernel\HttpKernelInterface;
use Symfony\Component\HttpKernel\Kernel;
use Symfony\Component\HttpKernel\KernelInterface;
use Symfony\Component\HttpKernel\TerminableInterface;

/**
 * Boots the kernel and handles all requests. A clone of the kernel handles the warm-ups and is
 * discarded. The serving kernel boots after them and has seen no request.
 */
final class Server
{
    private ?Kernel $rehearsal = null;
    /**
     * The kernel with a container: the serving one, or the one behind Symfony's HTTP cache. Null if
     * that is no `KernelInterface`.
     */
    private readonly ?KernelInterface $inner;
    private readonly Process $process;
    private readonly ExceptionHandler $exceptions;
    private ?Retained $retained = null;

    /** @var list<string> as configured, with REMOTE_ADDR as a name */
    private readonly array $trustedProxies;
    private readonly int $trustedHeaders;

    /** Whether exit() ended the previous request inside the kernel. */
    private bool $interrupted = false;

    private function __construct(private readonly HttpKernelInterface $kernel)
    {
        $inner = $kernel instanceof HttpCache ? $kernel->getKernel() : $kernel;
        $this->inner = $inner instanceof KernelInterface ? $inner : null;
        if (!$this->inner && !Engine::forgets()) {
            throw new \LogicException(\sprintf(
                'the kernel %s is no %s, so nothing would reset it between requests; '
                    .'it needs the engine `classic`, or `rewind`, which restores all memory',
                get_debug_type($inner),
                KernelInterface::class,
            ));
        }
        // Symfony puts the address of a request in the place of this name when a kernel boots. With
        // the name as the address, the name stays for handle().
        $_SERVER['REMOTE_ADDR'] = 'REMOTE_ADDR';
        $this->inner?->boot();
        unset($_SERVER['REMOTE_ADDR']);
        $this->trustedProxies = Request::getTrustedProxies();
        $this->trustedHeaders = Request::getTrustedHeaderSet();
        $this->process = new Process();
        $this->exceptions = new ExceptionHandler();
        if ($this->inner && !Engine::forgets()) {
            $this->retained = $this->retained($this->inner);
        }
    }

    /**
     * The kernel among the variables of a front controller; Symfony's HTTP cache comes before the
     * kernel that it wraps.
     *
     * @param array<string, mixed> $variables
     */
    public static function find(array $variables): HttpKernelInterface
    {
        $kernels = array_filter(
            $variables,
            static fn (mixed $value) => $value instanceof HttpKernelInterface
        );
        $caches = array_filter(
            $kernels,
            static fn (HttpKernelInterface $kernel) => $kernel instanceof HttpCache
        );

        return end($caches) ?: end($kernels) ?: throw new \LogicException(
            'the front controller has no kernel in a variable when it creates the request',
        );
    }

    public static function serve(HttpKernelInterface $kernel): void
    {
        $server = null;
        Failure::reportOf(static function () use ($kernel, &$server): void {
            $server = new self($kernel);
            if (Engine::copiesBoot()) {
                BootDatabases::close(self::connections(self::container($server->inner)));
            }
        });
        // On `worker`, a kernel that cannot be cloned handles warm-ups itself, and is not restored.
        if ($server->inner instanceof Kernel || Engine::forgets()) {
            Warmup::saveBoot();
        }
        surus_serve($server->answer(...));
    }

    private function answer(): void
    {
        Hook::begin();
        $warmup = Warmup::current();
        if ($warmup && $this->inner instanceof Kernel) {
            // A clone is unbooted, even of a booted kernel.
            $this->rehearsal ??= clone $this->inner;
            Warmup::afterwards(fn () => $this->afterWarmup($warmup));
            $this->interrupted = true;
            $this->handle($this->rehearsal);
            $this->interrupted = false;
        } elseif ($warmup && Engine::forgets()) {
            $this->skipWarmup($warmup->isLast());
        } elseif (Engine::forgets()) {
            $this->handle($this->kernel);
            self::disconnect(self::container($this->inner));
        } else {
            $this->recover();
            $this->interrupted = true;
            $this->handle($this->kernel);
            $this->interrupted = false;
            $this->forget();
        }
    }

    /** Handles no warm-up: only the serving kernel could, and nothing would undo that. */
    private function skipWarmup(bool $last): void
    {
        if ($last) {
            Warmup::afterwards(Warmup::restoreBoot(...));
            Warmup::report([\sprintf(
                'none, because the kernel %s is no %s, of which Surus could use a clone',
                get_debug_type($this->kernel),
                Kernel::class,
            )]);
        }
    }

    private function handle(HttpKernelInterface $kernel): void
    {
        if (\in_array('REMOTE_ADDR', $this->trustedProxies, true)) {
            Request::setTrustedProxies($this->trustedProxies, $this->trustedHeaders);
        }
        $request = Request::createFromGlobals();
        $kernel = self::cached($kernel);
        $response = $kernel->handle($request);
        // Symfony ends the client's wait here; later work delays no client.
        $response->send();
        if ($kernel instanceof TerminableInterface) {
            $kernel->terminate($request, $response);
        }
        if ($this->retained) {
            foreach (Visitor::of($request, self::container($this->inner)) as $object) {
                $this->retained->watch($object);
            }
        }
    }

    /**
     * Symfony's cache in front of the kernel, if `framework.http_cache` enables one. Symfony 5 uses
     * it only in a kernel that has not booted.
     */
    private static function cached(HttpKernelInterface $kernel): HttpKernelInterface
    {
        if (
            !$kernel instanceof KernelInterface
                || property_exists(Kernel::class, 'handlingHttpCache')
        ) {
            return $kernel;
        }
        $container = self::container($kernel);

        return $container?->has('http_cache') ? $container->get('http_cache') : $kernel;
    }

    /**
     * Boots the kernel again after exit() inside a request: Symfony would not reset services any
     * more, and would take that request for the main request of all later ones.
     */
    private function recover(): void
    {
        if ($this->interrupted) {
            $this->inner?->shutdown();
            $this->inner?->boot();
            $this->restoreProcess();
        }
    }

    private function restoreProcess(): void
    {
        $this->process->restore();
        $this->exceptions->restore();
    }

    /** Lets Symfony reset its services now, instead of at the next request. */
    private function forget(): void
    {
        $this->inner?->boot();
        $this->restoreProcess();
        $this->retained?->check();
    }

    private function afterWarmup(Warmup $warmup): void
    {
        $last = $warmup->isLast();
        self::disconnect(self::container($this->rehearsal));
        if (\PHP_SESSION_ACTIVE === session_status()) {
            session_abort();
        }
        $priming = $last && !$warmup->isTrial() ? $this->priming() : null;
        if ($last || $this->interrupted) {
            $this->rehearsal->shutdown();
            $this->interrupted = false;
        }
        $this->restoreProcess();
        if ($last) {
            $this->rehearsal = null;
            gc_collect_cycles();
            Warmup::restoreBoot();
            // Bundles may have stored the discarded container in static properties.
            $this->inner->shutdown();
            $this->inner->boot();
            $priming?->apply($this->inner);
            if (Engine::copiesBoot()) {
                BootDatabases::close(self::connections(self::container($this->inner)));
            }
            $this->restoreProcess();
        }
    }

    /** Null in debug mode, in which each boot of a kernel looks for changed files. */
    private function priming(): ?Priming
    {
        $inner = $this->inner;

        return $inner instanceof Kernel && !$inner->isDebug() && self::container($this->rehearsal)
            ? Priming::of($this->rehearsal)
            : null;
    }

    /**
     * Disconnects Doctrine: forked processes would share the connections of warm-ups. Those that
     * the end of the boot has left open stay open.
     */
    public static function disconnect(?ContainerInterface $container): void
    {
        foreach (self::connections($container) as $connection) {
            BootDatabases::closeUnlessKept($connection);
        }
    }

    /**
     * Doctrine's connections that are in use. Its bundle names them in a parameter, because
     * services may use them without the registry.
     *
     * @return array<string, object> by name, without databases in memory
     */
    public static function connections(?ContainerInterface $container): array
    {
        $used = [];
        if ($container?->hasParameter($name = 'doctrine.connections')) {
            $used = array_filter($container->getParameter($name), $container->initialized(...));
            $used = array_map($container->get(...), $used);
        } elseif ($container?->initialized('doctrine')) {
            $used = $container->get('doctrine')->getConnections();
        }

        return array_filter($used, static function (object $connection): bool {
            $has = method_exists($connection, 'getParams') ? $connection->getParams() : [];

            // In memory, the connection is the database.
            return empty($has['memory']) && !str_contains($has['path'] ?? '', ':memory:');
        });
    }

    private static function container(?KernelInterface $kernel): ?ContainerInterface
    {
        try {
            return $kernel?->getContainer();
        } catch (\LogicException) {
            return null; // not booted
        }
    }

    private function retained(KernelInterface $kernel): Retained
    {
        $project = rtrim($kernel->getProjectDir(), '/').'/';
        $libraries = [
            $project.'vendor/',
            rtrim($kernel->getCacheDir(), '/').'/',
            rtrim($kernel->getBuildDir(), '/').'/',
        ];

        return new Retained(
            fn () => ['the service container' => self::container($this->inner)],
            static function (\ReflectionClass $class) use ($project, $libraries): bool {
                $file = (string) $class->getFileName();
                foreach ($libraries as $library) {
                    if (str_starts_with($file, $library)) {
                        return false;
                    }
                }

                return str_starts_with($file, $project);
            },
            static fn (string $message) => error_log($message),
            // Its listeners keep the first request, and its matcher the last one without a route.
            // Neither responds with it.
            ['Symfony\\'],
        );
    }
}
