<?php

use App\Controller\Reports;
use Symfony\Component\Routing\Loader\Configurator\RoutingConfigurator;

return static function (RoutingConfigurator $routes): void {
    $routes->add('reports', '/reports')->controller([Reports::class, 'reports'])->methods(['GET', 'POST']);
    $routes->add('send', '/reports/send')->controller([Reports::class, 'send'])->methods(['POST']);
    $routes->add('burn', '/reports/burn')->controller([Reports::class, 'burn'])->methods(['POST']);
    $routes->add('api_write', '/api/reports')->controller([Reports::class, 'write'])->methods(['POST']);
    $routes->add('api_read', '/api/reports')->controller([Reports::class, 'read'])->methods(['GET']);
    $routes->add('archive', '/archive')->controller([Reports::class, 'archive']);
    $routes->add('archive_in', '/{_locale}/archive')->controller([Reports::class, 'archive'])->requirements(['_locale' => 'de|en']);
};
