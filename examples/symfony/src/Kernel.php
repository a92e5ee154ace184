<?php

namespace App;

use App\Controller\Api;
use App\Controller\Guestbook;
use App\Controller\Pages;
use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Bundle\TwigBundle\TwigBundle;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpKernel\Kernel as HttpKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;
use Symfony\Component\Security\Csrf\CsrfTokenManager;

final class Kernel extends HttpKernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        return [new FrameworkBundle(), new TwigBundle()];
    }

    public function getProjectDir(): string
    {
        return \dirname(__DIR__);
    }

    public function getCacheDir(): string
    {
        $directory = getenv('APP_CACHE_DIR');

        return $directory ? "$directory/$this->environment" : parent::getCacheDir();
    }

    public function getLogDir(): string
    {
        return getenv('APP_LOG_DIR') ?: parent::getLogDir();
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => 'nothing here is signed',
            'http_method_override' => false,
            'form' => ['enabled' => true],
            // Debian has no package that is certain to bring this component.
            'csrf_protection' => class_exists(CsrfTokenManager::class),
            'router' => ['utf8' => true],
            'session' => [
                'handler_id' => null,
                'storage_factory_id' => 'session.storage.factory.native',
                'cookie_secure' => 'auto',
                'cookie_samesite' => 'lax',
            ],
        ]);
        $container->extension('twig', ['default_path' => '%kernel.project_dir%/templates']);

        $services = $container->services()->defaults()->autowire()->autoconfigure();
        $services->load(
            'App\\Controller\\',
            __DIR__.'/Controller/'
        )->tag('controller.service_arguments');
        $services->load('App\\Form\\', __DIR__.'/Form/');
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        $routes->add('home', '/')->controller([Pages::class, 'home'])->methods(['GET']);
        $routes->add('hello', '/hello/{name}')
            ->controller([Pages::class, 'hello'])
            ->methods(['GET']);
        $routes->add('visits', '/visits')->controller([Pages::class, 'visits'])->methods(['GET']);
        $routes->add('guestbook', '/guestbook')
            ->controller([Guestbook::class, 'page'])
            ->methods(['GET', 'POST']);
        $routes->add('api_hello', '/api/hello')
            ->controller([Api::class, 'hello'])
            ->methods(['GET']);
        $routes->add('api_echo', '/api/echo')
            ->controller([Api::class, 'echo'])
            ->methods(['POST', 'PUT']);
        $routes->add('api_rows', '/api/rows/{count}')
            ->controller([Api::class, 'rows'])
            ->methods(['GET'])
            ->requirements(['count' => '\d{1,6}']);
    }
}
