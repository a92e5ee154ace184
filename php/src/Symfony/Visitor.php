<?php

namespace Surus\Symfony;

use Symfony\Component\DependencyInjection\Container;
use Symfony\Component\DependencyInjection\ContainerInterface;
use Symfony\Component\HttpFoundation\Request;
use Symfony\Component\Security\Core\Authentication\Token\Storage\TokenStorage;

/**
 * What belongs to the visitor of a request: the request itself, the session, the user that a
 * firewall has found.
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
        // Symfony 5 has sessions made by a service, which it resets itself.
        if ($request->hasSession(true) && !\in_array($session = $request->getSession(), $services, true)) {
            $found[] = $session;
        }
        // To ask the storage might load a user whom nobody has asked for.
        $storage = $services['security.untracked_token_storage'] ?? null;
        if ($storage instanceof TokenStorage) {
            $token = \Closure::bind(static fn (TokenStorage $of) => $of->token, null, TokenStorage::class)($storage);
            array_push($found, ...array_filter([$token, $token?->getUser()]));
        }

        return $found;
    }
}
