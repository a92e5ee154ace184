//! Patterns for the names that tools and administrators give to earlier states of a file.

/// Patterns for rotated, renamed and compressed files of these names, except for `.html`. They have
/// a number or date (`.1`, `-20260101`), `old` or `bak`, or the ending of a compressed file or
/// archive (`.gz`, `.zip` and the like). With `also` in front, for these names as well.
macro_rules! rotated {
    (also $($name:literal),*) => {
        rotated!(@list [$($name,)*] $($name),*)
    };
    ($($name:literal),*) => {
        rotated!(@list [] $($name),*)
    };
    (@list [$($plain:literal,)*] $($name:literal),*) => {
        &[$($plain,)* $(
            concat!($name, "[-._][0-9]*"),
            concat!($name, "[-._]old*"),
            concat!($name, "[-._]bak*"),
            concat!($name, ".*z"),
            concat!($name, ".*z[0-9]"),
            concat!($name, ".*zst"),
            concat!($name, ".*zip"),
            concat!($name, ".*lzma"),
            concat!($name, ".*rar"),
            // Pages about such files.
            concat!("!", $name, "[-._]*.html"),
        )*]
    };
}

/// Patterns for archives with these names, and a date or number after them (`db-20260101.gz`).
macro_rules! archives {
    ($($name:literal),*) => {
        &[$(
            concat!($name, ".tar"),
            concat!($name, ".*z"),
            concat!($name, ".*z2"),
            concat!($name, ".*zst"),
            concat!($name, ".*zip"),
            concat!($name, ".rar"),
            concat!($name, "[-_][0-9]*.tar"),
            concat!($name, "[-_][0-9]*.*z"),
            concat!($name, "[-_][0-9]*.*z2"),
            concat!($name, "[-_][0-9]*.*zst"),
            concat!($name, "[-_][0-9]*.*zip"),
            concat!($name, "[-_][0-9]*.rar"),
        )*]
    };
}

pub(super) use {archives, rotated};
