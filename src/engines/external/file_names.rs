//! The names of the files in the directory of an external PHP.

/// The script that reports PHP's version and settings.
pub const REPORT: &str = "report.php";
/// The driver of `cli`, which runs the application's script.
pub const DRIVER: &str = "cli.php";
/// The configuration of php-fpm.
pub const CONFIGURATION: &str = "fpm.conf";
/// The router of `builtin`, which the server runs for every request.
pub const ROUTER: &str = "router.php";
/// The router's key.
pub const KEY: &str = "key.php";

/// The directory of `roadrunner` for uploaded files.
pub const UPLOADS: &str = "uploads";

/// The CGI variables for the slot's next request.
pub fn variables(slot: usize) -> String {
    format!("variables.{slot}")
}
