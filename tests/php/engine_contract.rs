//! The contract of engines: each test runs on every engine of the catalogue that it applies to.

mod exceptions;
pub mod subject;

/// Makes a test of each function that takes an engine.
macro_rules! engine_contract {
    (ours: $(fn $name:ident($engine:ident) $body:block)*) => {
        $(
            #[test]
            fn $name() {
                $crate::engine_contract::subject::on_our_engines(stringify!($name), |#[allow(unused_mut)] mut $engine| async move { $body });
            }
        )*
    };
    (standing: $(fn $name:ident($engine:ident) $body:block)*) => {
        $(
            #[test]
            fn $name() {
                $crate::engine_contract::subject::on_standing_engines(stringify!($name), |#[allow(unused_mut)] mut $engine| async move { $body });
            }
        )*
    };
    (isolating: $(fn $name:ident($engine:ident) $body:block)*) => {
        $(
            #[test]
            fn $name() {
                $crate::engine_contract::subject::on_isolating_engines(stringify!($name), |#[allow(unused_mut)] mut $engine| async move { $body });
            }
        )*
    };
    ($(fn $name:ident($engine:ident) $body:block)*) => {
        $(
            #[test]
            fn $name() {
                $crate::engine_contract::subject::on_every_engine(stringify!($name), |#[allow(unused_mut)] mut $engine| async move { $body });
            }
        )*
    };
}

mod answers;
mod bodies;
mod children;
mod ends;
mod gone;
mod isolation;
mod queue;
mod reload;
mod sources;
mod stock;
