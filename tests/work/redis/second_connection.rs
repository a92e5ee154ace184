//! A queue of a Laravel application outside its default connection.

use std::fs;

use super::super::laravel::{Laravel, debian};
use super::Redis;

#[test]
fn queue_outside_the_default_connection_is_named_at_the_start() {
    let redis = Redis::start();
    let laravel = Laravel::new(&debian());
    let own = laravel.table.source.clone();
    for (source, is_named) in [(redis.url(), true), (own, false)] {
        let config = format!("[[queue]]\nname = 'mails'\nsource = '{source}'\n");
        fs::write(laravel.site.www().join("surus.toml"), config).unwrap();
        let work = laravel.start(&["--workers", "1"]);
        let warning = "name the application's default connection";
        assert_eq!(work.log().contains(warning), is_named, "{}", work.log());
    }
}
