//! Tests that a booted WordPress knows its visitors where plugins ask for them while it loads.

use super::blog::{database, install};
use super::client::Client;
use super::wordpress::{both, same};
use crate::common::ports::free_address;

/// Asks before the boot has ended, and shows what WordPress answers to a request.
const ASKS: &str = r#"<?php
add_action( 'plugins_loaded', fn () => current_user_can( 'edit_posts' ) );
add_action( 'setup_theme', fn () => wp_get_current_user()->user_login );
add_action( 'after_setup_theme', 'is_user_logged_in' );
add_action( 'wp_head', function () {
	printf(
		'<meta name="visitor" content="%s, set %d times">',
		wp_get_current_user()->user_login ?: 'nobody',
		did_action( 'set_current_user' )
	);
} );
"#;

/// Has a say in what WordPress makes on `init`, so that the boot makes nothing of it.
const FILTERS: &str = r#"<?php
add_filter( 'register_post_type_args', fn ( $args ) => $args );
"#;

#[test]
fn visitors_of_a_booted_wordpress_are_known_although_plugins_have_asked_in_the_boot() {
    let database = database();
    let site = both(&database);
    let root = site.www().join("wordpress");
    let host = free_address();
    install(&root, &host);
    let plugins = root.join("wp-content/mu-plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    std::fs::write(plugins.join("asks.php"), ASKS).unwrap();
    for filters in ["<?php", FILTERS] {
        std::fs::write(plugins.join("filters.php"), filters).unwrap();
        let surus = site.serve_with(&["--engine", "rewind", "--listen", &host], &[]);
        let base = format!("http://{host}");
        let (author, reader) = (Client::new(&base), Client::new(&base));
        let fields = [
            ("log", "hannibal"),
            ("pwd", "elephants-218"),
            ("testcookie", "1"),
        ];
        author.get("/wp-login.php").ok();
        author.post("/wp-login.php", &fields).ok();
        for _ in 0..2 {
            same(&author, filters, "/", &[])
                .shows("wpadminbar")
                .shows("\"hannibal, set 1 times\"");
            same(&reader, filters, "/", &[])
                .lacks("wpadminbar")
                .shows("\"nobody, set 1 times\"");
        }
        let log = surus.log();
        assert!(!log.contains("PHP Warning"), "{log}");
    }
}
