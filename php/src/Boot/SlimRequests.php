<?php

namespace Surus\Boot;

use Psr\Http\Message\ServerRequestInterface;
use Slim\App;
use Slim\Factory\ServerRequestCreatorFactory;
use Slim\Interfaces\ServerRequestCreatorInterface;
use Surus\Engine;

/** Creates the requests of a Slim application. The boot ends where the application asks for one. */
final class SlimRequests implements ServerRequestCreatorInterface
{
    private ?ServerRequestCreatorInterface $creator = null;

    public function createServerRequestFromGlobals(): ServerRequestInterface
    {
        if (!$this->creator) {
            $this->creator = self::creator();
            if (Engine::forgets()) {
                surus_checkpoint();
            } else {
                self::serve();
            }
        }

        return $this->creator->createServerRequestFromGlobals();
    }

    /** Serves all requests with the application that has asked for one. */
    private static function serve(): never
    {
        foreach (debug_backtrace(\DEBUG_BACKTRACE_PROVIDE_OBJECT) as $frame) {
            $app = $frame['object'] ?? null;
            if ($app instanceof App && 'run' === $frame['function']) {
                surus_serve(static fn () => $app->run());
                exit;
            }
        }

        throw new \LogicException(
            'the application creates the request without App::run(), so that the engine `worker` cannot serve it; '
            .'use the engine `rewind`',
        );
    }

    /** The creator that Slim would use. Slim itself decorates what it returns. */
    private static function creator(): ServerRequestCreatorInterface
    {
        $find = static function (): ServerRequestCreatorInterface {
            $kept = [
                self::$serverRequestCreator,
                self::$slimHttpDecoratorsAutomaticDetectionEnabled
            ];
            self::$serverRequestCreator = null;
            self::$slimHttpDecoratorsAutomaticDetectionEnabled = false;
            $found = self::determineServerRequestCreator();
            [
                self::$serverRequestCreator,
                self::$slimHttpDecoratorsAutomaticDetectionEnabled
            ] = $kept;

            return $found;
        };

        return \Closure::bind($find, null, ServerRequestCreatorFactory::class)();
    }
}
