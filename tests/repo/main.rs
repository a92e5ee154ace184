//! The repository itself: its layers and its documentation.
#![allow(clippy::unwrap_used)]

mod architecture;
mod commands;
mod configuration;
mod engines_page;
mod markdown;
mod pages;
mod shell;
mod snippets;
