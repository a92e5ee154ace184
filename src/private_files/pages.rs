//! Files that belong to pages: extensions that are never private, and libraries in a document root.

use super::{Class, PrivateFileRule};

/// Libraries in a document root that contains the project itself. In older applications, browsers
/// load their style sheets and scripts from there; nothing else in them is a page.
pub static LIBRARIES: Class = Class {
    name: "libraries",
    reason: "their PHP was never meant to be asked for",
    rule: PrivateFileRule::Unsent,
    patterns: &["/vendor/", "/node_modules/", "/bower_components/"],
};

/// Extensions of page assets. Such files are never private by their name. Most requests for files
/// are for them, so only their directories are compared with the list.
pub(super) const ASSETS: &[&str] = &[
    "avif", "css", "cur", "eot", "gif", "ico", "jpeg", "jpg", "js", "map", "mjs", "mp3", "mp4",
    "ogg", "otf", "png", "svg", "ttf", "wasm", "webm", "webp", "woff", "woff2",
];
