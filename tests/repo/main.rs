//! The repository itself: its layers and its documentation.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;

mod alerts;
mod architecture;
mod c_names;
mod commands;
mod comparison;
mod configuration;
mod containers;
mod debian;
mod engines_page;
mod guide_commands;
mod help_texts;
mod http_page;
mod log_lines;
mod markdown;
mod pages;
mod quoted_messages;
mod security;
mod shell;
mod snippets;
