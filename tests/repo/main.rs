//! The repository itself: its layers, its documentation and its README.
#![allow(clippy::unwrap_used)]

mod architecture;
mod documentation;
mod readme;
