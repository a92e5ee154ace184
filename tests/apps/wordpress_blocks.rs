//! Tests that what WordPress creates on `init`, mostly blocks, is the same if it was created at the
//! boot.

use super::blog::{database, install, run};
use super::client::Client;
use super::wordpress::{both, same};
use crate::common::ports::free_address;

/// Everything that WordPress registers on `init` for content, and the styles of the theme.
const REGISTERED: &str = r#"<?php
require __DIR__ . '/wp-load.php';
// It contains the current time.
unset( wp_scripts()->registered['utils'] );
$blocks = WP_Block_Type_Registry::get_instance()->get_all_registered();
echo json_encode( [
	$blocks,
	// Newer versions make them when they are asked for.
	array_map( fn ( $type ) => $type->variations, $blocks ),
	get_post_types( [], 'objects' ),
	get_taxonomies( [], 'objects' ),
	wp_scripts()->registered,
	wp_styles()->registered,
	WP_Theme_JSON_Resolver::get_merged_data()->get_raw_data(),
], JSON_THROW_ON_ERROR | JSON_PRETTY_PRINT );
"#;

const BLOCKS: &str = concat!(
    r#"<!-- wp:search {"label":"Find","buttonPosition":"button-only"} /-->"#,
    r#"<!-- wp:navigation -->"#,
    r#"<!-- wp:navigation-link {"label":"x","url":"/"} /-->"#,
    r#"<!-- wp:navigation-submenu {"label":"y","url":"/y"} -->"#,
    r#"<!-- wp:navigation-link {"label":"z","url":"/z"} /-->"#,
    r#"<!-- /wp:navigation-submenu -->"#,
    r#"<!-- /wp:navigation -->"#,
    r#"<!-- wp:latest-posts /-->"#,
    r#"<!-- wp:file {"href":"/a.pdf","displayPreview":true} -->"#,
    r#"<div class="wp-block-file">"#,
    r#"<object class="wp-block-file__embed" data="/a.pdf" type="application/pdf"></object>"#,
    r#"<a href="/a.pdf">a</a>"#,
    r#"</div>"#,
    r#"<!-- /wp:file -->"#,
);

/// Assets of blocks are registered in advance, and the page names them by their whole URL. Debian's
/// own theme consists of blocks.
#[test]
fn booted_wordpress_renders_blocks_like_classic() {
    let database = database();
    let site = both(&database);
    let root = site.www().join("wordpress");
    let host = free_address();
    install(&root, &host);
    run(
        &root,
        &format!(
            "wp_insert_post([
                'post_title' => 'Blocks',
                'post_name' => 'blocks',
                'post_status' => 'publish',
                'post_content' => '{BLOCKS}',
            ]);"
        ),
    );
    std::fs::write(root.join("registered.php"), REGISTERED).unwrap();
    for theme in ["alps", "twentytwentythree"] {
        run(&root, &format!("switch_theme('{theme}');"));
        let surus = site.serve_with(&["--engine", "rewind", "--listen", &host], &[]);
        let reader = Client::new(&format!("http://{host}"));
        for headers in [&[][..], &[("x-forwarded-proto", "https")]] {
            for path in [
                "/",
                "/blocks/",
                "/alpen/",
                "/?s=elephants",
                "/no/such/page/",
            ] {
                same(&reader, theme, path, headers);
            }
            for path in [
                "/feed/",
                "/wp-json/",
                "/wp-json/wp/v2/posts",
                "/wp-login.php",
                "/registered.php",
            ] {
                same(&reader, theme, path, headers).ok();
            }
        }
        let secure = [("x-forwarded-proto", "https")];
        // WordPress 6.5 and newer have it as a script module.
        same(&reader, theme, "/blocks/", &secure)
            .ok()
            .find(&format!(
                "(https://{host}/wp-includes/(?:blocks|js/dist/script-modules/block-library)\
             /navigation/view.min.js)"
            ));
        // Template parts are content, which is loaded after the boot.
        let part = format!("gaiter-of-{theme}");
        same(&reader, theme, "/registered.php", &[]).lacks(&part);
        run(
            &root,
            &format!(
                "$id = wp_insert_post([
                    'post_type' => 'wp_template_part',
                    'post_title' => 'Gaiter',
                    'post_name' => '{part}',
                    'post_status' => 'publish',
                    'post_content' => 'Warm.',
                ]);
                wp_set_object_terms($id, '{theme}', 'wp_theme');
                wp_set_object_terms($id, 'header', 'wp_template_part_area');"
            ),
        );
        let registered = same(&reader, theme, "/registered.php", &[]);
        if theme == "twentytwentythree" {
            registered.shows(&part);
        }
        assert!(!surus.log().contains("PHP Warning"), "{}", surus.log());
    }
    // This plugin registers after the boot.
    let plugins = root.join("wp-content/mu-plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    std::fs::write(plugins.join("late.php"), STYLES_ON_INIT).unwrap();
    let surus = site.serve_with(&["--engine", "rewind", "--listen", &host], &[]);
    let reader = Client::new(&format!("http://{host}"));
    same(&reader, "late", "/registered.php", &[]).shows("elephant-grey");
    same(&reader, "late", "/", &[]);
    drop(surus);
    std::fs::write(plugins.join("late.php"), NO_PULLQUOTES).unwrap();
    let surus = site.serve_with(&["--engine", "rewind", "--listen", &host], &[]);
    let reader = Client::new(&format!("http://{host}"));
    same(&reader, "without", "/registered.php", &[]).lacks("core\\/pullquote");
    assert!(!surus.log().contains("PHP Warning"), "{}", surus.log());
}

/// Adds a colour to WordPress's own.
const STYLES_ON_INIT: &str = r#"<?php
add_action( 'init', function () {
	add_filter( 'wp_theme_json_data_default', function ( $data ) {
		$color = [ 'slug' => 'elephant-grey', 'color' => '#888888', 'name' => 'Elephant' ];
		$settings = [ 'color' => [ 'palette' => [ $color ] ] ];
		return $data->update_with( [ 'version' => 2, 'settings' => $settings ] );
	} );
}, 30 );
"#;

/// Removes a block, and with it its styles.
const NO_PULLQUOTES: &str = r#"<?php
add_action( 'init', fn () => unregister_block_type( 'core/pullquote' ), 20 );
"#;
