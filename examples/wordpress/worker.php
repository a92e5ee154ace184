<?php

/*
 * WordPress, booted once: core, plugins and theme are loaded, up to where WordPress looks at the visitor. README.md says what that means.
 */

/** Entry scripts that say what they are before they load WordPress: they need a process that has not loaded it. */
const SURUS_CLASSIC = '#^/(wp-admin/|wp-(activate|cron|mail|signup)\.php|xmlrpc\.php)#';

// WordPress takes over hooks that are there before it is. This one is the last before the visitor is looked at.
$wp_filter = [
	'after_setup_theme' => [ PHP_INT_MAX => [ [ 'function' => new Surus_Checkpoint( $_SERVER ), 'accepted_args' => 0 ] ] ],
];

require $_SERVER['DOCUMENT_ROOT'] . '/wp-load.php';

// From here on this is a request, in the global scope, where WordPress's scripts expect to be.
chdir( dirname( $_SERVER['SCRIPT_FILENAME'] ) );
require $_SERVER['SCRIPT_FILENAME'];

/** The end of the boot, and what of it has to be done anew for a request. */
final class Surus_Checkpoint {

	public function __construct( private readonly array $server ) {
	}

	public function __invoke(): void {
		if ( is_multisite() ) {
			throw new Error( 'A network of sites looks at the request before it loads plugins. It belongs to the engine `classic`.' );
		}
		$booted = self::chosen();
		$locale = determine_locale();
		$vars   = self::vars();

		$this->close();
		surus_checkpoint();
		self::refuse();

		// The order is that of wp-settings.php.
		wp_fix_server_vars();
		wp_maintenance();
		timer_start();
		wp_debug_mode();
		self::connect();
		$vars();
		wp_start_scraping_edited_file_errors();
		wp_magic_quotes();
		unset( $GLOBALS['wp_actions']['sanitize_comment_cookies'] );
		do_action( 'sanitize_comment_cookies' );
		if ( determine_locale() !== $locale ) {
			load_default_textdomain();
			$GLOBALS['wp_locale'] = new WP_Locale();
		}
		if ( self::chosen() !== $booted ) {
			error_log( 'The theme or the active plugins are not those that this process has loaded. What helps: surus reload' );
		}
	}

	/** Connections cannot outlive the boot, and what the object cache holds would be stale. */
	private function close(): void {
		wp_cache_close();
		$GLOBALS['wpdb']->close();
		$_SERVER = $this->server;
		$_GET = $_POST = $_COOKIE = $_REQUEST = [];
	}

	private static function connect(): void {
		$GLOBALS['wpdb']->num_queries = 0;
		$GLOBALS['wpdb']->db_connect();
		wp_cache_init();
		// The second call adds the global groups.
		wp_start_object_cache();
	}

	private static function refuse(): void {
		if ( preg_match( SURUS_CLASSIC, $_SERVER['SCRIPT_NAME'] ) ) {
			http_response_code( 500 );
			error_log( $_SERVER['SCRIPT_NAME'] . ' belongs to the engine `classic`; surus.toml beside this script has the [[route]].' );
			exit;
		}
	}

	/** What decides which files are loaded. */
	private static function chosen(): array {
		return [ get_option( 'template' ), get_option( 'stylesheet' ), get_option( 'active_plugins' ), get_option( 'siteurl' ) ];
	}

	/** Of wp-includes/vars.php the part that looks at the request; it cannot be included twice, as it declares functions. */
	private static function vars(): callable {
		$code = file_get_contents( ABSPATH . WPINC . '/vars.php' );
		$end  = strrpos( substr( $code, 0, strpos( $code, "\nfunction " ) ), '/**' );

		return eval( 'return static function () {' . substr( $code, strlen( '<?php' ), $end - strlen( '<?php' ) ) . '};' );
	}
}
