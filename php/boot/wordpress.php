<?php

/*
 * WordPress, booted once: core, plugins and theme are loaded, up to where WordPress looks at the
 * visitor, and a little further. README.md says what that means.
 */

/**
 * Entry scripts that need a process that has not loaded WordPress: they say before what they are,
 * or do their work only if they load it.
 */
const SURUS_CLASSIC = '#^/(wp-admin/|wp-(activate|cron|mail|signup|trackback)\.php|xmlrpc\.php)#';

$surus_options      = new Surus_Options();
$surus_translations = new Surus\Boot\Translations();

// WordPress takes over hooks that are there before it is. The last one is the last before the
// visitor is looked at.
$wp_filter = [
	'all'               => [
		Surus_Options::PRIORITY => [ [ 'function' => $surus_options, 'accepted_args' => 1 ] ]
	],
	'load_textdomain'   => [
		Surus\Boot\Translations::PRIORITY => [
			[ 'function' => $surus_translations, 'accepted_args' => 2 ]
		]
	],
	'after_setup_theme' => [
		PHP_INT_MAX => [
			[
				'function'      => new Surus_Checkpoint(
					$_SERVER,
					$surus_options,
					$surus_translations
				),
				'accepted_args' => 0
			]
		]
	],
];
unset( $surus_options, $surus_translations );

require $_SERVER['DOCUMENT_ROOT'] . '/wp-load.php';

// From here on this is a request, in the global scope, where WordPress's scripts expect to be.
chdir( dirname( $_SERVER['SCRIPT_FILENAME'] ) );
require $_SERVER['SCRIPT_FILENAME'];

/** The end of the boot, and what of it has to be done again for a request. */
final class Surus_Checkpoint {

	public function __construct(
		private readonly array $server,
		private readonly Surus_Options $options,
		private readonly Surus\Boot\Translations $translations
	) {
	}

	public function __invoke(): void {
		if ( is_multisite() ) {
			throw new Error(
				'A network of sites looks at the request before it loads plugins. It belongs to the engine `classic`.'
			);
		}
		$cache = realpath( WP_CONTENT_DIR . '/advanced-cache.php' );
		if ( in_array( $cache, get_included_files(), true ) ) {
			throw new Error(
				"$cache (WP_CACHE) answers requests before WordPress loads. It belongs to the engine `classic`: restart Surus."
			);
		}
		$this->options->save();
		$this->translations->save();
		$locale  = determine_locale();
		$https   = Surus\Boot\WordPressCode::https();
		$vars    = Surus\Boot\WordPressCode::vars();
		$filters = Surus\Boot\WordPressCode::filters();
		Surus\Boot\EarlyHooks::report();
		self::forget_visitor();
		$ahead = new Surus_Ahead();

		$this->close();
		surus_checkpoint();
		self::refuse();

		// The order is that of wp-config.php and wp-settings.php.
		$https();
		wp_fix_server_vars();
		wp_maintenance();
		surus_renew_constant( 'WP_START_TIMESTAMP', microtime( true ) );
		timer_start();
		wp_debug_mode();
		self::connect();
		$vars();
		$filters();
		wp_start_scraping_edited_file_errors();
		self::recover();
		wp_magic_quotes();
		unset( $GLOBALS['wp_actions']['sanitize_comment_cookies'] );
		do_action( 'sanitize_comment_cookies' );
		if ( determine_locale() !== $locale ) {
			$this->translations->load( $locale );
			$GLOBALS['wp_locale'] = new WP_Locale();
			$ahead->undo();
		}
		if ( ! $ahead->holds() ) {
			$GLOBALS['wp_rewrite']->init();
			$ahead->undo();
		}
		$this->options->compare();
	}

	/** Connections cannot outlive the boot, and what the object cache holds would be stale. */
	private function close(): void {
		wp_cache_close();
		$GLOBALS['wpdb']->close();
		$_SERVER = $this->server;
		$_GET = $_POST = $_COOKIE = $_REQUEST = [];
		self::forget_visitor();
	}

	/**
	 * A plugin may have asked who the visitor is. WordPress keeps the answer, and the boot has no
	 * visitor.
	 */
	private static function forget_visitor(): void {
		unset( $GLOBALS['current_user'], $GLOBALS['wp_actions']['set_current_user'] );
	}

	private static function connect(): void {
		$GLOBALS['wpdb']->num_queries = 0;
		$GLOBALS['wpdb']->db_connect();
		wp_cache_init();
		// The second call adds the global groups.
		wp_start_object_cache();
	}

	/** Begins recovery mode by its link, or goes on with it by its cookie. */
	private static function recover(): void {
		if ( wp_recovery_mode()->is_initialized() ) {
			wp_recovery_mode()->initialize();
		}
	}

	private static function refuse(): void {
		if ( preg_match( SURUS_CLASSIC, $_SERVER['SCRIPT_NAME'] ) ) {
			http_response_code( 500 );
			error_log(
				$_SERVER['SCRIPT_NAME']
					. ' needs a process that has not loaded WordPress; a [[route]] with engine = "classic" must cover this URL'
			);
			exit;
		}
	}
}

/**
 * The options that the boot reads: theme, active plugins, addresses, and what plugins read while
 * they load.
 */
final class Surus_Options {

	public const PRIORITY = 0;

	/**
	 * Before WordPress looks for an option, this hook may answer. Its name ends with the option's.
	 */
	private const HOOK = 'pre_option_';

	/** Options that change while nothing is configured. */
	private const VOLATILE = '/^(cron|rewrite_rules|_(site_)?transient_.*)$/';

	private array $names = [];

	/** As they are in the database, by name. */
	private array $values;

	/** Is called for every hook while WordPress loads. */
	public function __invoke( string $hook ): void {
		if ( str_starts_with( $hook, self::HOOK ) ) {
			$this->names[ substr( $hook, strlen( self::HOOK ) ) ] = true;
		}
	}

	public function save(): void {
		remove_filter( 'all', $this, self::PRIORITY );
		$this->names  = array_diff_key(
			$this->names,
			array_flip( preg_grep( self::VOLATILE, array_keys( $this->names ) ) )
		);
		$this->values = $this->now();
	}

	/**
	 * Has WordPress booted again if they are others. The request goes on with the options of now
	 * and the code of then.
	 */
	public function compare(): void {
		$now = $this->now();
		if ( $now === $this->values ) {
			return;
		}
		$changed = array_keys(
			array_filter(
				$now + $this->values,
				fn ( $name ) => ( $now[ $name ] ?? null ) !== ( $this->values[ $name ] ?? null ),
				ARRAY_FILTER_USE_KEY
			)
		);
		surus_boot_outdated( 'option ' . implode( ', ', $changed ), md5( serialize( $now ) ) );
	}

	/** Those that WordPress reads all at once. */
	private function now(): array {
		return array_intersect_key( wp_load_alloptions(), $this->names );
	}
}

/**
 * What WordPress's own callbacks do on `init` that depends on neither visitor nor content, done at
 * the boot: it makes the built-in types of posts, taxonomies and blocks. Nothing of it is done
 * where a plugin or the theme might have a say in it before or meanwhile.
 */
final class Surus_Ahead {

	private const CALLBACKS =
		'/^(create_initial_(post_types|taxonomies)|register_core_block_(style_handles|types_from_metadata)|wp_register_core_block_metadata_collection|register_(block_core_\w+(?<!_post_meta)|legacy_post_comments_block))$/';

	/** Through these others may change what is made, as the visitor has it. */
	private const FILTERS =
		'/^(all|register(ed)?_(\w+_)?(post_type|taxonomy)(_\w+)?|register_\w+_args|(post_type|taxonomy)_labels_.+|block_type_metadata\w*|n?gettext\w*|(includes|site|plugins)_url|should_load_(separate_core_block_assets|block_assets_on_demand)|wp_should_output_buffer_template_for_enhancement)$/';

	/**
	 * Through these, what themes build on: WordPress's own theme.json, and styles of its blocks.
	 */
	private const STYLES = [ 'wp_theme_json_data_default', 'wp_theme_json_data_blocks' ];

	/** What makes the block that shows parts of templates. */
	private const PARTS = 'register_block_core_template_part';

	/** Themes with parts of templates support one of these. */
	private const SUPPORTS = [ 'block-templates', 'block-template-parts' ];

	/** Options that decide about it. */
	private const OPTIONS = [ 'permalink_structure', 'category_base', 'tag_base' ];

	/**
	 * What decides, since 6.9, that pages have the styles of their own blocks only. WordPress calls
	 * it before it makes the styles of blocks.
	 */
	private const ON_DEMAND = 'wp_load_classic_theme_block_styles_on_demand';

	/** What WordPress decides once for all pages, by the first that asks. */
	private const DECISIONS = [ 'concatenate_scripts', 'compress_scripts', 'compress_css' ];

	private readonly array $reasons;

	/** The callbacks of `init` as WordPress had them. */
	private readonly WP_Hook $init;

	/**
	 * Scripts and styles that blocks have registered. WordPress also registers its own, as the
	 * visitor has them, so that is left to the request.
	 */
	private array $registered = [
		'wp_scripts' => WP_Scripts::class,
		'wp_styles' => WP_Styles::class
	];

	/** Those that were made, by name. */
	private array $blocks = [];

	public function __construct() {
		// Addresses of what blocks load have the scheme that visitors come by.
		if ( 'https' === wp_parse_url( get_option( 'siteurl' ), PHP_URL_SCHEME ) ) {
			$_SERVER['HTTPS'] = 'on';
		}
		$this->reasons = self::reasons();
		$this->init    = clone $GLOBALS['wp_filter']['init'];
		$filters       = preg_grep( self::FILTERS, array_keys( $GLOBALS['wp_filter'] ) );
		if ( array_filter( $filters, self::has_other_callbacks( ... ) ) ) {
			return;
		}
		$before    = self::blocks();
		$undecided = array_diff( self::DECISIONS, array_keys( $GLOBALS ) );
		foreach ( $this->registered as $global => $class ) {
			if ( isset( $GLOBALS[ $global ] ) ) {
				unset( $this->registered[ $global ] );
			} else {
				$this->registered[ $global ] = $GLOBALS[ $global ] = (
					new ReflectionClass( $class )
				)->newInstanceWithoutConstructor();
			}
		}
		// WordPress's own look whether it is time.
		$GLOBALS['wp_current_filter'][] = 'init';
		$GLOBALS['wp_actions']['init']  = 1;
		foreach ( [ 'init', 'wp_default_styles' ] as $hook ) {
			if ( false !== has_action( $hook, self::ON_DEMAND ) ) {
				( self::ON_DEMAND )();
			}
		}
		$this->run();
		$this->blocks = array_diff_key( self::blocks(), $before );
		// Before 6.1, what it has noted of the blocks cannot be noted again.
		if (
			method_exists( WP_Theme_JSON_Resolver::class, 'get_block_data' )
				&& ! self::others_style()
		) {
			self::styles();
			add_action( 'init', $this->renew_styles( ... ), PHP_INT_MAX );
		}
		unset( $GLOBALS['wp_actions']['init'] );
		array_pop( $GLOBALS['wp_current_filter'] );
		foreach ( [ ...array_keys( $this->registered ), ...$undecided ] as $global ) {
			unset( $GLOBALS[ $global ] );
		}
		add_action( 'init', $this->register( ... ), 9 );
		if ( isset( $GLOBALS['current_user'] ) ) {
			// Something has looked at the visitor nevertheless.
			$this->undo();
		}
	}

	private function register(): void {
		foreach ( $this->registered as $global => $kept ) {
			if ( $kept->registered ) {
				// They are called as the functions that make them, which decide about the page.
				$global()->registered += $kept->registered;
			}
		}
	}

	/** Is all that was made what would be made now? */
	public function holds(): bool {
		return self::reasons() === $this->reasons;
	}

	/** Has `init` make everything again. */
	public function undo(): void {
		foreach ( array_keys( $this->blocks ) as $name ) {
			WP_Block_Type_Registry::get_instance()->unregister( $name );
		}
		WP_Theme_JSON_Resolver::clean_cached_data();
		$GLOBALS['wp_filter']['init'] = $this->init;
	}

	private function run(): void {
		foreach ( $this->init->callbacks as $priority => $callbacks ) {
			foreach ( $callbacks as $callback ) {
				$function = $callback['function'];
				if ( ! self::is_of_wordpress( $function ) ) {
					return;
				}
				if ( is_string( $function ) && preg_match( self::CALLBACKS, $function ) ) {
					if ( self::PARTS === $function && self::looks_at_templates() ) {
						$this->run_without_templates( $function, $priority );
						continue;
					}
					$function();
					remove_action( 'init', $function, $priority );
					$this->forget_what_came_too_late( $priority );
				}
			}
		}
	}

	/**
	 * Has the block made as for a theme without templates; the request adds those that there are
	 * then.
	 */
	private function run_without_templates( string $function, int $priority ): void {
		$supported = $GLOBALS['_wp_theme_features'];
		$GLOBALS['_wp_theme_features'] = array_diff_key( $supported, array_flip( self::SUPPORTS ) );
		$function();
		$GLOBALS['_wp_theme_features'] = $supported;
		// At its place, and under its name, by which others remove it.
		$GLOBALS['wp_filter']['init']->callbacks[ $priority ][
			$function
		]['function'] = static function () {
			$block = WP_Block_Type_Registry::get_instance()->get_registered( 'core/template-part' );
			if ( $block ) {
				$block->variations = build_template_part_block_variations();
			}
		};
	}

	/**
	 * Reads them for the blocks that there are. Which those were, WordPress notes at the second
	 * call only, and reads again where it finds others.
	 */
	private static function styles(): void {
		for ( $call = 1; $call <= 2; $call++ ) {
			WP_Theme_JSON_Resolver::get_core_data();
			WP_Theme_JSON_Resolver::get_block_data();
		}
	}

	/** Many come with their say on `init`, or take blocks away. */
	private function renew_styles(): void {
		$are_there = array_intersect_key( self::blocks(), $this->blocks ) === $this->blocks;
		if ( ! $are_there ) {
			Closure::bind(
				static fn () => WP_Theme_JSON::$blocks_metadata = [],
				null,
				WP_Theme_JSON::class
			)();
		}
		if ( ! $are_there || self::others_style() ) {
			WP_Theme_JSON_Resolver::clean_cached_data();
		}
	}

	/** Whether a plugin or the theme has a say in them. */
	private static function others_style(): bool {
		return (bool) array_filter( self::STYLES, self::has_other_callbacks( ... ) );
	}

	/** What is added to `init` while it runs is not called where that place has passed. */
	private function forget_what_came_too_late( int $now ): void {
		foreach ( $GLOBALS['wp_filter']['init']->callbacks as $priority => $callbacks ) {
			foreach (
				array_diff_key( $callbacks, $this->init->callbacks[ $priority ] ?? [] ) as $callback
			) {
				if ( $priority < $now ) {
					remove_action( 'init', $callback['function'], $priority );
				}
			}
		}
	}

	/** Is there a callback of a plugin's or the theme's? */
	private static function has_other_callbacks( string $filter ): bool {
		foreach ( $GLOBALS['wp_filter'][ $filter ]->callbacks ?? [] as $callbacks ) {
			foreach ( $callbacks as $callback ) {
				if ( ! self::is_of_wordpress( $callback['function'] ) ) {
					return true;
				}
			}
		}

		return false;
	}

	private static function blocks(): array {
		return WP_Block_Type_Registry::get_instance()->get_all_registered();
	}

	private static function is_of_wordpress( mixed $callback ): bool {
		if ( ! is_callable( $callback ) ) {
			return false; // it may be by then
		}
		$file = ( new ReflectionFunction( Closure::fromCallable( $callback ) ) )->getFileName();

		return is_string( $file ) && str_starts_with( $file, realpath( ABSPATH . WPINC ) . '/' );
	}

	/** What of a request decides about it. */
	private static function reasons(): array {
		return [ is_ssl(), ...array_map( 'get_option', self::OPTIONS ) ];
	}

	/**
	 * Parts of templates are content. From 5.9 to 6.4 WordPress looks for them when it makes the
	 * block that shows them.
	 */
	private static function looks_at_templates(): bool {
		return function_exists( 'build_template_part_block_variations' )
			&& ! property_exists( WP_Block_Type::class, 'variation_callback' )
			&& array_filter( self::SUPPORTS, current_theme_supports( ... ) );
	}
}
