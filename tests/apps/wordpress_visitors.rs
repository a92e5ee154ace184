//! Tests that a booted WordPress knows what WordPress finds out while it loads: the visitor,
//! recovery mode, previews of themes, cached pages.

use super::blog::{database, install, run, site_of};
use super::client::Client;
use super::database::Database;
use super::site::{Site, framework};
use super::wordpress::{both, same};
use crate::common::Surus;
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
        log_in(&author);
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

fn log_in(author: &Client) {
    let fields = [
        ("log", "hannibal"),
        ("pwd", "elephants-218"),
        ("testcookie", "1"),
    ];
    author.get("/wp-login.php").ok();
    author.post("/wp-login.php", &fields).ok();
}

/// WordPress 7.1 as it is, with a route to compare with `classic`.
pub fn newest(database: &Database, more: &str) -> Site {
    let files = framework("wordpress7").with_file_name("wordpress");
    let route = "[[route]]\nprefix = \"/\"\nheader = \"x-classic\"\nengine = \"classic\"\n";
    site_of(&files, database, "", more).write("surus.toml", route)
}

pub fn serve(site: &Site, host: &str) -> Surus {
    site.serve_with(&["--engine", "rewind", "--listen", host], &[])
}

pub const BOOTED: &str = "script=\"surus://boot/wordpress.php\"";

/// Makes the link that WordPress mails after a fatal error of a plugin.
const LINK: &str = "
$keys = new WP_Recovery_Mode_Key_Service();
$token = $keys->generate_recovery_mode_token();
$query = [
    'action' => 'enter_recovery_mode',
    'rm_token' => $token,
    'rm_key' => $keys->generate_and_store_recovery_mode_key($token),
];
file_put_contents('link.txt', '/wp-login.php?'.http_build_query($query));";

#[test]
fn recovery_mode_of_a_booted_wordpress_begins_by_its_link_and_goes_on() {
    let database = database();
    let site = both(&database);
    let root = site.www().join("wordpress");
    let host = free_address();
    install(&root, &host);
    run(&root, LINK);
    let link = std::fs::read_to_string(root.join("link.txt")).unwrap();
    let surus = serve(&site, &host);
    surus.wait_for_log(|log| log.contains(BOOTED));
    let author = Client::new(&format!("http://{host}"));
    let wrong = "/wp-login.php?action=enter_recovery_mode&rm_token=x&rm_key=y";
    same(&author, "wrong", wrong, &[]).says("Recovery Mode not initialized.");
    author.get(&link).shows("Recovery Mode Initialized.");
    log_in(&author);
    same(&author, "recovery", "/", &[]).shows("exit_recovery_mode");
    let reader = Client::new(&format!("http://{host}"));
    same(&reader, "reader", "/", &[]).lacks("exit_recovery_mode");
}

/// The site editor previews another theme, also where it asks for contents.
#[test]
fn theme_that_a_visitor_previews_is_shown_to_that_visitor() {
    let database = database();
    let site = newest(&database, "")
        .write(
            "wp-content/themes/pyrenees/style.css",
            "/* Theme Name: Pyrenees */",
        )
        .write(
            "wp-content/themes/pyrenees/index.php",
            "<?php echo 'In the Pyrenees.';",
        );
    let host = free_address();
    install(&site.www(), &host);
    let surus = serve(&site, &host);
    surus.wait_for_log(|log| log.contains(BOOTED));
    let author = Client::new(&format!("http://{host}"));
    log_in(&author);
    let preview = "/?wp_theme_preview=pyrenees";
    same(&author, "preview", preview, &[]).shows("In the Pyrenees.");
    same(&author, "no preview", "/", &[]).lacks("In the Pyrenees.");
}

/// Answers before WordPress is loaded.
const CACHE: &str = "<?php
if ('/cached/' === ($_SERVER['REQUEST_URI'] ?? '')) {
    exit('from the cache');
}";

#[test]
fn wordpress_with_a_cache_of_pages_is_served_by_classic() {
    let database = database();
    let site = newest(&database, "define('WP_CACHE', true);")
        .write("wp-content/advanced-cache.php", CACHE);
    let host = free_address();
    install(&site.www(), &host);
    let surus = serve(&site, &host);
    surus.wait_for_log(|log| log.contains("`classic` serves it instead"));
    let log = surus.log();
    let why = "advanced-cache.php (WP_CACHE) answers requests before WordPress loads";
    assert!(log.contains(why), "{log}");
    let reader = Client::new(&format!("http://{host}"));
    reader.get("/cached/").shows("from the cache");
    reader.get("/").shows("The Alps");
}

/// Loads translations in three ways. WordPress finds only the first file by itself, and the third
/// is that of all languages.
const TRANSLATED: &str = r#"<?php
/* Plugin Name: Elephants */
add_action( 'plugins_loaded', function () {
	load_plugin_textdomain( 'elephants', false, 'elephants/languages' );
	load_textdomain( 'alps', WP_LANG_DIR . '/alps/alps-' . determine_locale() . '.mo' );
	load_textdomain( 'rhone', WP_LANG_DIR . '/alps/rhone.mo' );
} );
add_action( 'after_setup_theme', fn () => __( 'Elephants', 'elephants' ) );
add_filter( 'login_display_language_dropdown', '__return_false' );
add_action( 'login_footer', function () {
	$texts = [
		__( 'Elephants', 'elephants' ),
		__( 'Alps', 'alps' ),
		__( 'Rhone', 'rhone' ),
		__( 'Password' ),
	];
	echo '<p>', implode( ', ', $texts ), '</p>';
} );
"#;

const WRITE_TRANSLATIONS: &str = r#"
foreach ([
    [WP_PLUGIN_DIR.'/elephants/languages/elephants-fr_FR.mo', 'Elephants', 'Éléphants'],
    [WP_PLUGIN_DIR.'/elephants/languages/elephants-de_DE.mo', 'Elephants', 'Elefanten'],
    [WP_LANG_DIR.'/alps/alps-fr_FR.mo', 'Alps', 'les Alpes'],
    [WP_LANG_DIR.'/alps/alps-de_DE.mo', 'Alps', 'die Alpen'],
    [WP_LANG_DIR.'/alps/rhone.mo', 'Rhone', 'Rhodanus'],
    [WP_LANG_DIR.'/fr_FR.mo', 'Password', 'Mot de passe'],
    [WP_LANG_DIR.'/de_DE.mo', 'Password', 'Passwort'],
] as [$file, $text, $translation]) {
    wp_mkdir_p(dirname($file));
    $mo = new MO();
    $mo->add_entry(['singular' => $text, 'translations' => [$translation]]);
    $mo->export_to_file($file);
}"#;

const USE_TRANSLATIONS: &str = "
update_option('WPLANG', 'fr_FR');
update_option('active_plugins', ['elephants/elephants.php']);";

#[test]
fn translations_that_the_boot_has_loaded_are_replaced_in_another_language() {
    type Version = fn(&Database) -> (Site, &'static str);
    let versions: [Version; 2] = [
        |database| (both(database), "wordpress/"),
        |database| (newest(database, ""), ""),
    ];
    for version in versions {
        let database = database();
        let (site, root) = version(&database);
        let site = site
            .directory(&format!("{root}wp-content/languages"))
            .write(
                &format!("{root}wp-content/plugins/elephants/elephants.php"),
                TRANSLATED,
            );
        let files = site.www().join(root);
        let host = free_address();
        install(&files, &host);
        run(&files, WRITE_TRANSLATIONS);
        run(&files, USE_TRANSLATIONS);
        let surus = serve(&site, &host);
        surus.wait_for_log(|log| log.contains(BOOTED));
        let french = "<p>Éléphants, les Alpes, Rhodanus, Mot de passe</p>";
        for (language, expected) in [
            ("", french),
            (
                "?wp_lang=de_DE",
                "<p>Elefanten, die Alpen, Rhodanus, Passwort</p>",
            ),
            (
                "?wp_lang=en_US",
                "<p>Elephants, Alps, Rhodanus, Password</p>",
            ),
            ("", french),
        ] {
            // WordPress keeps the language in a cookie.
            let reader = Client::new(&format!("http://{host}"));
            same(&reader, root, &format!("/wp-login.php{language}"), &[]).shows(expected);
        }
    }
}
