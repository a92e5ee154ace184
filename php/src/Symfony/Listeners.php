<?php

namespace Surus\Symfony;

use Symfony\Component\EventDispatcher\EventDispatcher;

/**
 * Creates event listeners ahead. A dispatcher keeps a closure for each service that listens, and
 * calls it when the event is dispatched for the first time. On an engine that restores memory, that
 * is in each request.
 */
final class Listeners
{
    /** @var array<string, string> services by place; '' where a listener is not a service */
    private array $ids = [];

    /** @param array<string, list<string>> $events those that were dispatched, by dispatcher */
    public function __construct(private readonly array $events)
    {
    }

    /**
     * Creates the services that listen, except those that are left out. Dispatchers stay as they
     * are.
     *
     * @param \Closure(): array<string, object>            $services of the container, at this
     * moment
     * @param \Closure(): array<string, string>            $leftOut  why, by service
     * @param \Closure(string, \Closure(): ?string): void  $try      calls a function that creates a
     *                                                               service and may return its name
     */
    public function create(\Closure $services, \Closure $leftOut, \Closure $try): void
    {
        foreach ($this->lazy($services()) as $place => [, $listener]) {
            $id = $this->ids[$place] ?? $place;
            if ('' === $id || isset($leftOut()[$id]) || isset($services()[$id])) {
                continue;
            }
            $try($id, function () use ($place, $listener, $services): ?string {
                $id = (string) array_search($listener[0](), $services(), true);
                $this->ids[$place] = $id;

                return '' === $id ? null : $id;
            });
        }
    }

    /**
     * Puts the created services in the place of the closures, as the first dispatch does.
     *
     * @param array<string, object> $services
     * @param array<string, string> $leftOut
     */
    public function replace(array $services, array $leftOut): void
    {
        $set = \Closure::bind(static function (
            EventDispatcher $of,
            array $at,
            array $listener
        ): void {
            [$event, $priority, $index] = $at;
            $of->listeners[$event][$priority][$index] = $listener;
        }, null, EventDispatcher::class);
        foreach ($this->lazy($services) as $place => [$dispatcher, $listener, $at]) {
            $id = $this->ids[$place] ?? '';
            if (isset($services[$id]) && !isset($leftOut[$id])) {
                $set($dispatcher, $at, [$services[$id], $listener[1] ?? '__invoke']);
            }
        }
    }

    /**
     * @param array<string, object> $services
     *
     * @return array<string, array{EventDispatcher, array{0: \Closure, 1?: string}, array{string,
     * int, int}}>
     */
    private function lazy(array $services): array
    {
        $read = \Closure::bind(
            static fn (EventDispatcher $of, string $event): array => $of->listeners[$event] ?? [],
            null,
            EventDispatcher::class,
        );
        $lazy = [];
        foreach ($this->events as $id => $events) {
            $dispatcher = $services[$id] ?? null;
            foreach ($dispatcher instanceof EventDispatcher ? $events : [] as $event) {
                foreach ($read($dispatcher, $event) as $priority => $listeners) {
                    foreach ($listeners as $index => $listener) {
                        // The condition of EventDispatcher::optimizeListeners().
                        if (
                            \is_array($listener)
                                && ($listener[0] ?? null) instanceof \Closure
                                && \count($listener) <= 2
                        ) {
                            $lazy["$id: $event ($priority, $index)"] = [
                                $dispatcher,
                                $listener,
                                [$event, $priority, $index]
                            ];
                        }
                    }
                }
            }
        }

        return $lazy;
    }
}
