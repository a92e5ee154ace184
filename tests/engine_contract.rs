//! What every engine has to do, as sentences; each runs on every engine of the catalogue.
#![allow(clippy::unwrap_used)]

#[path = "engine_contract/subject.rs"]
mod subject;

/// Makes a test of every sentence.
macro_rules! engine_contract {
    (ours: $(fn $name:ident($engine:ident) $body:block)*) => {
        $(
            #[test]
            fn $name() {
                $crate::subject::on_our_engines(|#[allow(unused_mut)] mut $engine| async move { $body });
            }
        )*
    };
    (standing: $(fn $name:ident($engine:ident) $body:block)*) => {
        $(
            #[test]
            fn $name() {
                $crate::subject::on_standing_engines(|#[allow(unused_mut)] mut $engine| async move { $body });
            }
        )*
    };
    (isolating: $(fn $name:ident($engine:ident) $body:block)*) => {
        $(
            #[test]
            fn $name() {
                $crate::subject::on_isolating_engines(|#[allow(unused_mut)] mut $engine| async move { $body });
            }
        )*
    };
    ($(fn $name:ident($engine:ident) $body:block)*) => {
        $(
            #[test]
            fn $name() {
                $crate::subject::on_every_engine(|#[allow(unused_mut)] mut $engine| async move { $body });
            }
        )*
    };
}

#[path = "engine_contract/answers.rs"]
mod answers;
#[path = "engine_contract/bodies.rs"]
mod bodies;
#[path = "engine_contract/children.rs"]
mod children;
#[path = "engine_contract/ends.rs"]
mod ends;
#[path = "engine_contract/gone.rs"]
mod gone;
#[path = "engine_contract/isolation.rs"]
mod isolation;
#[path = "engine_contract/queue.rs"]
mod queue;
#[path = "engine_contract/reload.rs"]
mod reload;
#[path = "engine_contract/sources.rs"]
mod sources;
#[path = "engine_contract/stock.rs"]
mod stock;
