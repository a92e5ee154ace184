//! Sets up a WordPress site with its own database.

use std::path::Path;
use std::process::Command;

use super::database::Database;
use super::site::{Site, extension, fixture, installed};
use crate::common::php::cli;

/// An image that tests upload.
pub const PNG: &[u8] = include_bytes!("elephant.png");

/// WordPress as Debian ships it, with its own configuration, and a theme because the package has
/// none. `more` is PHP for the configuration.
pub fn site(database: &Database, root: &str, more: &str) -> Site {
    let files = installed("/usr/share/wordpress", "wordpress");
    site_of(&files, database, root, more)
}

/// The same with the files of another version.
pub fn site_of(files: &Path, database: &Database, root: &str, more: &str) -> Site {
    let config = format!(
        r#"<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'wordpress');
define('DB_PASSWORD', 'alps-218');
define('DB_HOST', 'localhost:{socket}');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $use) {{
    define($use.'_KEY', "key of $use");
    define($use.'_SALT', "salt of $use");
}}
// No requests leave this machine, and nothing runs that the test did not request.
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('DISABLE_WP_CRON', true);
define('WP_DEFAULT_THEME', 'alps');
{more}
$table_prefix = 'wp_';
defined('ABSPATH') || define('ABSPATH', __DIR__.'/');
require ABSPATH.'wp-settings.php';
"#,
        socket = database.socket().display()
    );
    let below = |path: &str| format!("{root}{path}");
    Site::new()
        .copy(files, root)
        .copy(&fixture("theme"), &below("wp-content/themes/alps"))
        .directory(&below("wp-content/uploads"))
        .write(&below("wp-config.php"), &config)
}

pub fn database() -> Database {
    extension("mysqli", "php-mysql");
    extension("gd", "php-gd");
    let database = Database::start();
    database.run(
        "CREATE DATABASE wordpress CHARACTER SET utf8mb4;
         CREATE USER wordpress@localhost IDENTIFIED BY 'alps-218';
         GRANT ALL ON wordpress.* TO wordpress@localhost",
    );
    database
}

/// Installs it at `host`, with a post and readable URLs.
pub fn install(root: &Path, host: &str) {
    let install = format!(
        r#"
const WP_INSTALLING = true;
$_SERVER['HTTP_HOST'] = '{host}';
$_SERVER['REQUEST_URI'] = $_SERVER['PHP_SELF'] = '/wp-admin/install.php';
require 'wp-load.php';
require 'wp-admin/includes/upgrade.php';
wp_install('The Alps & Beyond', 'hannibal', 'hannibal@example.org', false, '', 'elephants-218');
// Not in the same second as WordPress's own post, because the database does not define their order
// then.
wp_insert_post([
    'post_title' => 'Über die Alpen',
    'post_name' => 'alpen',
    'post_date' => '2024-10-30 12:00:00',
    'post_status' => 'publish',
    'post_content' => '<p>Elephants.</p>',
]);
update_option('permalink_structure', '/%postname%/');
update_option('comment_moderation', 1);
$wp_rewrite->init();
flush_rewrite_rules();"#
    );
    php(root, &install);
}

/// Runs PHP in an installed WordPress.
pub fn run(root: &Path, code: &str) {
    php(root, &format!("require 'wp-load.php'; {code}"));
}

fn php(root: &Path, code: &str) {
    let output = Command::new(cli())
        .args(["-d", "sendmail_path=/bin/true", "-r", code])
        .current_dir(root)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.is_empty(), "{said}");
}
