//! Tests an application with an `.htaccess` of its own in a directory of a booted application.

use crate::booted::boot_in;
use crate::site::{Site, app};

const RULES: &str = "RewriteEngine On
RewriteCond %{REQUEST_FILENAME} !-f
RewriteRule ^ index.php [L]
";

/// The root's application, and a blog that its front controller does not know.
fn site(engine: &str, handler: &str, configuration: &str) -> Site {
    let dir = app();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("index.php", "<?php echo 'root ', $_SERVER['REQUEST_URI'];");
    std::fs::create_dir(dir.path().join("blog")).unwrap();
    write("blog/.htaccess", RULES);
    write(
        "blog/index.php",
        "<?php echo 'blog ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['SCRIPT_NAME'];",
    );
    write("surus.toml", configuration);
    let boot = format!("surus_serve(function () {{ {handler} }});");
    boot_in(dir, engine, &boot, &["--workers", "1"], &[]).unwrap_or_else(|log| panic!("{log}"))
}

const ENGINES: [&str; 3] = ["rewind", "fork", "worker"];

#[test]
fn handler_gets_the_front_controller_of_the_sub_directory() {
    for engine in ENGINES {
        let site = site(engine, "require $_SERVER['SCRIPT_FILENAME'];", "");
        for _ in 0..3 {
            assert_eq!(site.get("/post/1").body, "root /post/1", "{engine}");
            let blog = site.get("/blog/post/1").body;
            assert_eq!(blog, "blog /blog/post/1 /blog/index.php", "{engine}");
        }
    }
}

#[test]
fn route_gives_the_sub_directory_to_classic() {
    let route = "[[route]]\nprefix = '/blog/'\nengine = 'classic'\n";
    for engine in ENGINES {
        let site = site(engine, "echo 'booted ', $_SERVER['REQUEST_URI'];", route);
        for _ in 0..3 {
            assert_eq!(site.get("/post/1").body, "booted /post/1", "{engine}");
            let blog = site.get("/blog/post/1").body;
            assert_eq!(blog, "blog /blog/post/1 /blog/index.php", "{engine}");
            assert_eq!(site.get("/blog/").body, "blog /blog/ /blog/index.php");
        }
    }
}
