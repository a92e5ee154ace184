//! Runs real applications: installs them, logs in, writes, uploads, reads back, and looks at them
//! in a browser.
#![allow(clippy::unwrap_used)]

mod common;

mod apps {
    mod blog;
    mod browser;
    mod client;
    mod database;
    mod examples;
    mod site;

    mod checkpoint;
    mod dokuwiki;
    mod events;
    mod frankenphp;
    mod frankenphp_requests;
    mod jobs;
    mod laravel;
    mod laravel_visitors;
    mod phpmyadmin;
    mod plain;
    mod psr15;
    mod slim;
    mod symfony;
    mod symfony_visitors;
    mod unit;
    mod visitors;
    mod warmup;
    mod wordpress;
    mod wordpress_blocks;
}
