//! Where the build script has put the program that runs PHP. There is no Rust in that program.

/// Absolute path of `surus-php8.x`, for tests.
pub const EXECUTABLE: &str = env!("SURUS_PHP_EXECUTABLE");
