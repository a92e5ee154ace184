//! Lets a request wait until the `.htaccess` files that decide about it have been read.

use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;

use super::site::{ReadRules, Site};
use super::validate::{RequestRejection, reject};

/// A request may read the files of this many paths. It needs one for its own path, and one for each
/// path that rules lead to.
const MAX_READ: usize = 32;

/// A request that cannot be answered before `.htaccess` files have been read.
pub struct UnreadRequest {
    pub(super) head: Parts,
    pub(super) site: Arc<Site>,
    /// The files are on the way to these.
    pub(super) directories: String,
}

impl UnreadRequest {
    /// Reads the files. Returns the request's head, to begin again.
    pub async fn read(self, read: &mut Vec<ReadRules>) -> Result<Parts, RequestRejection> {
        if read.len() == MAX_READ {
            let why = "the request needs too many .htaccess files that have not been read";
            return Err(reject(StatusCode::SERVICE_UNAVAILABLE, why));
        }
        read.push(self.site.read_htaccess(self.directories).await);
        Ok(self.head)
    }
}
