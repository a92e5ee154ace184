<?php

add_action('after_setup_theme', static function (): void {
    add_theme_support('title-tag');
    add_theme_support('automatic-feed-links');
    // They would load images from s.w.org.
    remove_action('wp_head', 'print_emoji_detection_script', 7);
});
add_action('wp_enqueue_scripts', static function (): void {
    wp_enqueue_style('alps', get_stylesheet_uri());
});
// They would come from gravatar.com.
add_filter('pre_option_show_avatars', '__return_zero');
