<?php

namespace Surus\Symfony;

use Symfony\Component\DependencyInjection\Container;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\Security\Core\Authentication\Token\Storage\TokenStorage;

/**
 * A request's visitor-specific objects: the request itself, the session, the user that a firewall
 * has found.
 */
final class Visitor
{
    /** @return list<object> */
    public static function of(Request $request, ?ContainerInterface $container): array
    {
        $found = [$request];
        $services = $container instanceof Container
            ? \Closure::bind(
                static fn (Container $of) => $of->services + $of->privates,
                null,
                Container::class,
            )($container)
            : [];
        // In Symfony 5 a service creates sessions, and resets itself.
        if (
            $request->hasSession(true)
                && !\in_array($session = $request->getSession(), $services, true)
        ) {
            $found[] = $session;
        }
        // Asking the storage might load a user that nothing has requested.
        $storage = $services['security.untracked_token_storage'] ?? null;
        if ($storage instanceof TokenStorage) {
            $token = \Closure::bind(
                static fn (TokenStorage $of) => $of->token,
                null,
                TokenStorage::class
            )($storage);
            array_push($found, ...array_filter([$token, $token?->getUser()]));
        }

        return $found;
    }
}
