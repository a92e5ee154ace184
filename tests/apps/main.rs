//! Runs real applications: installs them, logs in, writes, uploads, reads back, and looks at them
//! in a browser.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod api;
mod before_request;
mod bench_pages;
mod blog;
mod boot_databases;
mod browser;
mod checkpoint;
mod client;
mod database;
mod deploys;
mod dokuwiki;
mod events;
mod examples;
mod flows;
mod frankenphp;
mod frankenphp_requests;
mod frankenphp_symfony;
mod guides;
mod init;
mod jobs;
mod laravel;
mod laravel_boot_reads;
mod laravel_skeleton;
mod laravel_visitors;
mod learned;
mod learned_deploys;
mod learned_files;
mod learned_hosts;
mod learned_outages;
mod mediawiki;
mod one_word;
mod one_word_scripts;
mod own_pages;
mod phpmyadmin;
mod plain;
mod psr15;
mod revalidation;
mod site;
mod slim;
mod symfony;
mod symfony_visitors;
mod unit;
mod visitors;
mod warmup;
mod wordpress;
mod wordpress_blocks;
mod wordpress_requests;
mod wordpress_visitors;
