<?php
// Installs a WordPress with some posts: install.php DIRECTORY HOST
const WP_INSTALLING = true;
[, $root, $_SERVER['HTTP_HOST']] = $argv;
$_SERVER['REQUEST_URI'] = $_SERVER['PHP_SELF'] = '/wp-admin/install.php';
require "$root/wp-load.php";
require ABSPATH.'wp-admin/includes/upgrade.php';
wp_install('The Alps', 'hannibal', 'hannibal@example.org', true, '', 'elephants-218');
for ($day = 1; $day <= 10; ++$day) {
    wp_insert_post([
        'post_title' => "Day $day in the Alps",
        'post_name' => "day-$day",
        'post_status' => 'publish',
        'post_date' => sprintf('2024-10-%02d 12:00:00', $day),
        'post_content' => str_repeat("<p>Snow, and elephants that <em>do not</em> like it.</p>\n", 10),
    ]);
}
update_option('permalink_structure', '/%postname%/');
$wp_rewrite->init();
flush_rewrite_rules();
