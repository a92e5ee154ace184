//! Tests code of a booted WordPress that looks at the request before WordPress does: in
//! wp-config.php, and in plugins.

use super::blog::{database, install};
use super::client::Client;
use super::wordpress::same;
use super::wordpress_visitors::{BOOTED, newest, serve};
use crate::common::ports::free_address;

/// As in the wp-config.php of WordPress's Docker image.
const DOCKER: &str = "
// If we're behind a proxy server and using HTTPS, we need to alert WordPress of that fact
if (isset($_SERVER['HTTP_X_FORWARDED_PROTO'])
    && strpos($_SERVER['HTTP_X_FORWARDED_PROTO'], 'https') !== false) {
	$_SERVER['HTTPS'] = 'on';
}
// (we include this by default because reverse proxying is extremely common)
";

const SECURE: &str = r#"<?php
add_action( 'wp_head', function () {
	printf( '<meta name="secure" content="%s">', is_ssl() ? 'yes' : 'no' );
} );
"#;

#[test]
fn https_that_wp_config_takes_from_the_proxy_is_that_of_each_request() {
    let secure = [("https", "yes"), ("http", "no"), ("https", "yes")];
    let always = [("http", "yes"), ("https", "yes"), ("http", "yes")];
    for (code, visits) in [(DOCKER, secure), ("$_SERVER['HTTPS'] = 'on';", always)] {
        let database = database();
        let site = newest(&database, code).write("wp-content/mu-plugins/secure.php", SECURE);
        let host = free_address();
        install(&site.www(), &host);
        let surus = serve(&site, &host);
        surus.wait_for_log(|log| log.contains(BOOTED));
        let reader = Client::new(&format!("http://{host}"));
        for (proto, shown) in visits {
            same(&reader, code, "/", &[("x-forwarded-proto", proto)])
                .shows(&format!("name=\"secure\" content=\"{shown}\""));
        }
        assert!(!surus.log().contains("PHP Warning"), "{}", surus.log());
    }
}

#[test]
fn wordpress_whose_configuration_uses_the_host_is_served_by_classic() {
    let database = database();
    let site = newest(
        &database,
        "define('WP_HOME', 'http://'.$_SERVER['HTTP_HOST']);",
    );
    let host = free_address();
    install(&site.www(), &host);
    let surus = serve(&site, &host);
    let why = "wp-config.php uses `$_SERVER['HTTP_HOST']`";
    surus.wait_for_log(|log| log.contains(why));
    Client::new(&format!("http://{host}"))
        .get("/")
        .shows("The Alps");
}

/// Hides the log-in, as plugins do it.
const HIDES: &str = r#"<?php
add_action( 'plugins_loaded', function () {
	global $pagenow;
	if ( str_contains( $_SERVER['REQUEST_URI'] ?? '', '/alps-login' ) ) {
		$pagenow = 'wp-login.php';
	}
} );
"#;

/// The same by the name of the variable.
const MOVES: &str = r#"<?php
add_action( 'setup_theme', function () { return $GLOBALS['pagenow']; } );
"#;

/// Has code on the same hook, but only its comment and its code on `init` look at the URL.
const GREETS: [&str; 2] = [
    "<?php // 'REQUEST_URI' and $pagenow\nadd_action( 'plugins_loaded', fn () => 'hello' );",
    "<?php add_action( 'init', fn () => $_SERVER['REQUEST_URI'] );",
];

#[test]
fn plugins_that_look_at_the_url_in_the_boot_are_named_once() {
    let database = database();
    let site = newest(&database, "")
        .write("wp-content/mu-plugins/hides.php", HIDES)
        .write("wp-content/mu-plugins/moves.php", MOVES)
        .write("wp-content/mu-plugins/greets.php", GREETS[0])
        .write("wp-content/mu-plugins/routes.php", GREETS[1]);
    let host = free_address();
    install(&site.www(), &host);
    let surus = serve(&site, &host);
    let named = [
        "the plugin file hides.php has code on plugins_loaded",
        "the plugin file moves.php has code on setup_theme",
    ];
    surus.wait_for_log(|log| log.contains(BOOTED) && named.iter().all(|it| log.contains(it)));
    let log = surus.log();
    assert_eq!(log.matches("the plugin file ").count(), 2, "{log}");
    Client::new(&format!("http://{host}")).get("/").ok();
}
