//! The CGI variables of an event for an external PHP.

use crate::engines::cgi::server_vars;
use crate::engines::cgi::server_vars::Variables;
use crate::engines::cgi::{fastcgi, params};
use crate::event::{Event, Failure};

/// Names and values.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Default)]
struct CollectedVariables {
    pairs: Pairs,
    total: usize,
    is_too_long: bool,
}

impl Variables for CollectedVariables {
    fn put(&mut self, name: &[u8], value: &[u8]) {
        let len = name.len() + value.len() + 8;
        self.total += len;
        self.is_too_long |= len > fastcgi::MAX_CONTENT;
        self.pairs.push((name.to_vec(), value.to_vec()));
    }
}

/// All variables, or an error if they exceed the limits.
pub fn from_event(event: &Event) -> Result<Pairs, Failure> {
    let mut collected = CollectedVariables::default();
    server_vars::each(event, &mut collected);
    if collected.is_too_long
        || collected.pairs.len() > params::MAX_COUNT
        || collected.total > params::MAX_TOTAL
    {
        return Err(params::too_large());
    }
    Ok(collected.pairs)
}
