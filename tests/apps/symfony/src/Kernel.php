<?php

namespace App;

use Symfony\Bundle\FrameworkBundle\FrameworkBundle;
use Symfony\Bundle\FrameworkBundle\Kernel\MicroKernelTrait;
use Symfony\Bundle\SecurityBundle\SecurityBundle;
use Symfony\Bundle\TwigBundle\TwigBundle;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;
use Symfony\Component\HttpKernel\Kernel as HttpKernel;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;
use Symfony\Component\Security\Core\User\InMemoryUser;

final class Kernel extends HttpKernel
{
    use MicroKernelTrait;

    public function registerBundles(): iterable
    {
        return [new FrameworkBundle(), new SecurityBundle(), new TwigBundle(), new Bundle()];
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
            'form' => ['enabled' => true],
            'csrf_protection' => true,
            'validation' => ['enabled' => true],
            'default_locale' => 'en',
            'translator' => ['default_path' => '%kernel.project_dir%/translations', 'fallbacks' => ['en']],
            'router' => ['utf8' => true],
            'session' => ['handler_id' => null, 'storage_factory_id' => 'session.storage.factory.native', 'cookie_secure' => 'auto', 'cookie_samesite' => 'lax'],
        ]);
        $container->extension('twig', ['default_path' => '%kernel.project_dir%/templates', 'globals' => ['brand' => 'Surus']]);
        $container->extension('security', (self::MAJOR_VERSION < 6 ? ['enable_authenticator_manager' => true] : []) + [
            'password_hashers' => [InMemoryUser::class => 'plaintext'],
            'providers' => ['people' => ['memory' => ['users' => [
                'ada' => ['password' => "ada's", 'roles' => ['ROLE_USER']],
                'bob' => ['password' => "bob's", 'roles' => ['ROLE_USER']],
            ]]]],
            'firewalls' => ['main' => [
                'lazy' => true,
                'provider' => 'people',
                'form_login' => ['login_path' => 'page', 'check_path' => 'login', 'default_target_path' => '/page', 'enable_csrf' => true, 'csrf_parameter' => '_token', 'username_parameter' => 'name', 'password_parameter' => 'password'],
                'logout' => ['path' => '/logout', 'target' => '/page'],
            ]],
            'access_control' => [['path' => '^/guarded', 'roles' => 'ROLE_USER']],
        ]);
        $services = $container->services()->defaults()->autowire()->autoconfigure();
        $services->load('App\\', __DIR__.'/')->exclude(__DIR__.'/{Kernel,Bundle}.php');
        $services->load('App\\Controller\\', __DIR__.'/Controller/')->tag('controller.service_arguments');
        // Only applications that add to this one have files of configuration.
        if (is_file($more = __DIR__.'/../config/services.php')) {
            $container->import($more);
        }
    }

    private function configureRoutes(RoutingConfigurator $routes): void
    {
        $add = static fn (string $name, string $path, string $method) => $routes->add($name, $path)->controller(['App\Controller\Visitor', $method]);
        foreach (['page', 'who', 'flash', 'form', 'change', 'keeps', 'dies', 'throws', 'json', 'guarded', 'born'] as $name) {
            $add($name, "/$name", $name);
        }
        foreach (['upload', 'cookie', 'cart', 'stream', 'file', 'version', 'body', 'inner', 'greeting', 'denied', 'cached'] as $name) {
            $routes->add($name, "/$name")->controller(['App\Controller\Traffic', $name]);
        }
        $routes->add('deleted', '/deleted')->controller(['App\Controller\Traffic', 'version'])->methods(['DELETE']);
        $add('localized', '/{_locale}/page', 'page')->requirements(['_locale' => 'de|en']);
        $routes->add('login', '/login');
        $routes->add('logout', '/logout');
        if (is_file($more = __DIR__.'/../config/routes.php')) {
            $routes->import($more);
        }
    }
}
