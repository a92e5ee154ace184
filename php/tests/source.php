<?php

// Tests that an application's classes are told from those of its libraries.

namespace Illuminate\Foundation {
    final class Application
    {
        public function __construct(private string $base)
        {
        }

        public function basePath(): string
        {
            return $this->base;
        }
    }
}

namespace {
    use Illuminate\Foundation\Application;
    use Surus\Laravel\Source;

    return [
        'classes of an application that is deployed as a link are its own' =>
        static function (): void {
            $base = sys_get_temp_dir().'/surus-source-'.getmypid();
            mkdir("$base/release/vendor", 0777, true);
            symlink("$base/release", "$base/current");
            file_put_contents("$base/release/Own.php", '<?php final class OwnClass {}');
            file_put_contents(
                "$base/release/vendor/Other.php",
                '<?php final class LibraryClass {}'
            );
            require "$base/current/Own.php";
            require "$base/current/vendor/Other.php";
            foreach (['current', 'release'] as $name) {
                $app = new Application("$base/$name");
                same(true, Source::isApplication($app, new ReflectionClass('OwnClass')));
                same(false, Source::isApplication($app, new ReflectionClass('LibraryClass')));
            }
            unlink("$base/release/Own.php");
            unlink("$base/release/vendor/Other.php");
            rmdir("$base/release/vendor");
            rmdir("$base/release");
            unlink("$base/current");
            rmdir($base);
        },
    ];
}
