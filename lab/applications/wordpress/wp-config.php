<?php
define('DB_NAME', 'wordpress');
define('DB_USER', 'wordpress');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:'.dirname(__DIR__).'/database/socket');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $use) {
    define($use.'_KEY', "key of $use");
    define($use.'_SALT', "salt of $use");
}
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('DISABLE_WP_CRON', true);
define('WP_DEFAULT_THEME', 'alps');
$table_prefix = 'wp_';
defined('ABSPATH') || define('ABSPATH', __DIR__.'/');
require ABSPATH.'wp-settings.php';
