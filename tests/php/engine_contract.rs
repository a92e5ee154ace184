//! The contract of engines: each test runs on every engine of the catalogue that it applies to.

mod exceptions;
pub mod selection;
pub mod subject;

/// Makes a test of each function that takes an engine.
macro_rules! engine_contract {
    (@by $run:ident: $(fn $name:ident($engine:ident) $body:block)*) => {
        $(
            #[test]
            fn $name() {
                $crate::engine_contract::selection::$run(
                    stringify!($name),
                    |#[allow(unused_mut)] mut $engine| async move { $body },
                );
            }
        )*
    };
    (surus_php: $($tests:tt)*) => { engine_contract!(@by on_surus_php_engines: $($tests)*); };
    (standing: $($tests:tt)*) => { engine_contract!(@by on_standing_engines: $($tests)*); };
    (isolating: $($tests:tt)*) => { engine_contract!(@by on_isolating_engines: $($tests)*); };
    ($($tests:tt)*) => { engine_contract!(@by on_every_engine: $($tests)*); };
}

mod answers;
mod bodies;
mod children;
mod client_closed;
mod external;
mod isolation;
mod queue;
mod reload;
mod request_ends;
mod sources;
