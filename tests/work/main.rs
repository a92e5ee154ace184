//! `surus work`: jobs from real databases, run by real PHP workers that crash, hang and throw.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../apps/site.rs"]
#[allow(dead_code)]
mod site;

mod ends;
mod laravel;
mod operate;
mod plain;
mod redis;
mod table;
mod work;
