<?php

namespace App;

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\DependencyInjection\Loader\Configurator\ReferenceConfigurator;
use Symfony\Component\HttpKernel\Kernel as HttpKernel;
use Symfony\Component\Messenger\Bridge\Doctrine\Transport\DoctrineTransportFactory;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

final class Kernel extends HttpKernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        return [new FrameworkBundle()];
    }

    public function getProjectDir(): string
    {
        return \dirname(__DIR__);
    }

    private function configureContainer(ContainerConfigurator $container): void
    {
        $container->extension('framework', [
            'secret' => 'nothing here is signed',
            'http_method_override' => false,
            'messenger' => ['transports' => ['async' => 'doctrine://default?auto_setup=0']],
        ]);
        $services = $container->services();
        $services->set('doctrine', Registry::class)->public();
        $services->set(DoctrineTransportFactory::class)
            ->args([new ReferenceConfigurator('doctrine')])->tag('messenger.transport_factory');
        $services->set(Handler::class)->tag('messenger.message_handler');
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
    }
}
