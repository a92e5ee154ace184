<?php

use Doctrine\DBAL\Connection;
use Doctrine\DBAL\DriverManager;
use Doctrine\ORM\Configuration;
use Doctrine\ORM\EntityManager;
use Doctrine\ORM\EntityManagerInterface;
use Doctrine\ORM\ORMSetup;
use Symfony\Component\DependencyInjection\Loader\Configurator\ContainerConfigurator;

use function Symfony\Component\DependencyInjection\Loader\Configurator\service;

return static function (ContainerConfigurator $container): void {
    $container->extension('framework', [
        'mailer' => ['dsn' => '%env(MAILER_DSN)%'],
        'serializer' => ['enabled' => true],
    ]);
    $services = $container->services()->defaults()->autowire()->autoconfigure();
    // The names of DoctrineBundle, of which Debian has no package.
    $container->parameters()->set('doctrine.connections', ['default' => 'doctrine.dbal.default_connection']);
    $services->alias(Connection::class, 'doctrine.dbal.default_connection');
    $services->set('doctrine.dbal.default_connection', Connection::class)->public()->factory([DriverManager::class, 'getConnection'])->args([[
        'driver' => 'pdo_%env(DB_DRIVER)%',
        // Of SQLite.
        'path' => '%env(DB_DATABASE)%',
        // Of MariaDB.
        'unix_socket' => '%env(DB_SOCKET)%',
        'dbname' => '%env(DB_DATABASE)%',
        'user' => '%env(DB_USERNAME)%',
        'password' => '%env(DB_PASSWORD)%',
        'charset' => 'utf8mb4',
    ]]);
    $services->set(Configuration::class)
        ->factory([ORMSetup::class, 'createAttributeMetadataConfiguration'])
        ->args([['%kernel.project_dir%/src/Entity'], false, '%kernel.cache_dir%/doctrine', service('cache.system')])
        // A proxy that does not exist is written.
        ->call('setAutoGenerateProxyClasses', [2]);
    $services->set(EntityManager::class)
        ->args([service(Connection::class), service(Configuration::class)])
        ->tag('kernel.reset', ['method' => 'clear']);
    $services->alias(EntityManagerInterface::class, EntityManager::class);
};
