<?php

namespace Surus\Symfony;

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
 * Boots the kernel and has it handle every request that comes. Warm-ups are handled by a kernel of
 * their own, which is thrown away; the kernel that serves is booted behind them, and has seen no
 * request.
 */
final class Server
{
    private ?Kernel $rehearsal = null;
    /**
     * The kernel that has a container: the one that serves, or the one behind Symfony's HTTP cache.
     */
    private readonly ?KernelInterface $inner;
    private readonly Process $process;
    private readonly ExceptionHandler $exceptions;
    private ?Retained $retained = null;

    /** Has the request before ended by exit(), somewhere inside the kernel? */
    private bool $interrupted = false;

    private function __construct(private readonly HttpKernelInterface $kernel)
    {
        $inner = $kernel instanceof HttpCache ? $kernel->getKernel() : $kernel;
        $this->inner = $inner instanceof KernelInterface ? $inner : null;
        $this->inner?->boot();
        $this->process = new Process();
        $this->exceptions = new ExceptionHandler();
        if (!Engine::forgets() && $this->inner) {
            $this->retained = $this->retained($this->inner);
        }
    }

    public static function serve(HttpKernelInterface $kernel): void
    {
        $server = new self($kernel);
        surus_serve($server->answer(...));
    }

    private function answer(): void
    {
        Hook::begin();
        $warmup = Warmup::current();
        if ($warmup && $this->inner instanceof Kernel) {
            // A clone of a kernel is not booted, whatever the kernel is.
            $this->rehearsal ??= clone $this->inner;
            Warmup::afterwards(fn () => $this->afterWarmup($warmup->isLast()));
            $this->interrupted = true;
            $this->handle($this->rehearsal);
            $this->interrupted = false;
        } elseif (Engine::forgets()) {
            $this->handle($this->kernel);
            $this->disconnect($this->inner);
        } else {
            $this->recover();
            $this->interrupted = true;
            $this->handle($this->kernel);
            $this->interrupted = false;
            $this->forget();
        }
    }

    private function handle(HttpKernelInterface $kernel): void
    {
        $request = Request::createFromGlobals();
        $response = $kernel->handle($request);
        // Symfony ends the client's wait here, so that what follows delays nobody.
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
     * Boots the kernel again where exit() has left a request inside: Symfony would reset no service
     * any more, and take that request for the main request of all that follow.
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

    /** Has Symfony reset its services now, and not where the next request begins. */
    private function forget(): void
    {
        $this->inner?->boot();
        $this->restoreProcess();
        $this->retained?->check();
    }

    private function afterWarmup(bool $last): void
    {
        $this->disconnect($this->rehearsal);
        if (\PHP_SESSION_ACTIVE === session_status()) {
            session_abort();
        }
        if ($last || $this->interrupted) {
            $this->rehearsal->shutdown();
            $this->interrupted = false;
        }
        if ($last) {
            $this->rehearsal = null;
            gc_collect_cycles();
            // Bundles may have told static properties of the container that is gone.
            $this->inner->shutdown();
            $this->inner->boot();
        }
        $this->restoreProcess();
    }

    /**
     * No process but this one knows Doctrine's connections, and after a warm-up others would share
     * them.
     */
    private function disconnect(?KernelInterface $kernel): void
    {
        $container = self::container($kernel);
        if ($container?->initialized('doctrine')) {
            foreach ($container->get('doctrine')->getConnections() as $connection) {
                $connection->close();
            }
        }
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
            // Its listeners keep the first request, its matcher the last that no route matched.
            // Neither answers with it.
            ['Symfony\\'],
        );
    }
}
