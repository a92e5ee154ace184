//! CGI variables as FastCGI's PARAMS records. A pair never crosses records: neither php-fpm nor our workers put it together again.

use crate::engines::fastcgi;
use crate::engines::server_vars::Variables;
use crate::event::Failure;

/// What a worker of ours can keep of one event (`SURUS_MAX_VARS`); so that all engines take the same, all have these limits.
pub const MAX_COUNT: usize = 1024;
/// Bytes of all records, so that they fit into a message of the inbox.
pub const MAX_TOTAL: usize = 191 * 1024;

/// Records at the end of `head`.
pub struct Params {
    head: Vec<u8>,
    request: u16,
    begin: usize,
    /// Where the record begins that is being filled.
    record: usize,
    count: usize,
    /// A variable fits into no record.
    too_long: bool,
}

impl Params {
    /// Behind what `head` has already.
    pub fn new(mut head: Vec<u8>, request: u16) -> Params {
        let begin = head.len();
        head.extend_from_slice(&[0; fastcgi::HEADER_LEN]);
        Params {
            head,
            request,
            begin,
            record: begin,
            count: 0,
            too_long: false,
        }
    }

    /// The head with all records.
    pub fn end(mut self) -> Result<Vec<u8>, Failure> {
        self.close_record();
        let total = self.head.len() - self.begin;
        if self.too_long || self.count > MAX_COUNT || total > MAX_TOTAL {
            return Err(too_large());
        }
        Ok(self.head)
    }

    fn close_record(&mut self) {
        let len = self.head.len() - self.record - fastcgi::HEADER_LEN;
        let header = fastcgi::header(fastcgi::PARAMS, self.request, len);
        self.head[self.record..self.record + fastcgi::HEADER_LEN].copy_from_slice(&header);
    }

    #[cold]
    fn next_record(&mut self) {
        self.close_record();
        self.record = self.head.len();
        self.head.extend_from_slice(&[0; fastcgi::HEADER_LEN]);
    }
}

impl Variables for Params {
    // With the name's length known, writing it takes a few instructions.
    #[inline(always)]
    fn put(&mut self, name: &[u8], value: &[u8]) {
        let len = name.len() + value.len() + 8;
        self.count += 1;
        if self.head.len() + len > self.record + fastcgi::HEADER_LEN + fastcgi::MAX_CONTENT {
            if len > fastcgi::MAX_CONTENT {
                self.too_long = true;
                return;
            }
            self.next_record();
        }
        fastcgi::put_pair(&mut self.head, name, value);
    }
}

/// Why PHP cannot have an event's variables.
pub fn too_large() -> Failure {
    Failure::TooLarge("the request's headers are more than PHP can be given")
}
