//! The examples of this repository, with their libraries, each in a directory of its own.

use super::site::{Site, example, installed};

pub fn symfony() -> Site {
    installed(
        "/usr/share/php/Symfony/Bundle/FrameworkBundle/autoload.php",
        "php-symfony-framework-bundle",
    );
    installed(
        "/usr/share/php/Symfony/Bundle/TwigBundle/autoload.php",
        "php-symfony-twig-bundle",
    );
    installed(
        "/usr/share/php/Symfony/Component/Form/autoload.php",
        "php-symfony-form",
    );
    installed(
        "/usr/share/php/Symfony/Component/Runtime/autoload.php",
        "php-symfony-runtime",
    );
    let parts = [
        "composer.json",
        "public",
        "src",
        "surus.toml",
        "templates",
        "worker.php",
    ];
    parts
        .iter()
        .fold(Site::new(), |site, part| {
            site.copy(&example("symfony").join(part), part)
        })
        .vendor()
}

pub fn laravel() -> Site {
    installed(
        "/usr/share/php/Illuminate/autoload.php",
        "php-laravel-framework",
    );
    let parts = [
        "app",
        "bootstrap/app.php",
        "composer.json",
        "config",
        "public",
        "resources",
        "routes",
        "surus.toml",
        "worker.php",
    ];
    parts
        .iter()
        .fold(Site::new(), |site, part| {
            site.copy(&example("laravel").join(part), part)
        })
        .directory("bootstrap/cache")
        .vendor()
}
