//! Writes CGI variables as FastCGI PARAMS records. A pair never spans records, because neither
//! php-fpm nor surus-php joins them.

use crate::engines::cgi::fastcgi;
use crate::engines::cgi::server_vars::Variables;
use crate::event::Failure;

/// The variables that a surus-php worker can hold (`SURUS_MAX_VARS`). All engines have this limit,
/// so that they accept the same requests.
pub const MAX_COUNT: usize = 1024;
/// The bytes of all records, which must fit into one inbox message.
pub const MAX_TOTAL: usize = 191 * 1024;

/// PARAMS records at the end of `records`.
pub struct Params {
    records: Vec<u8>,
    request: u16,
    begin: usize,
    /// The start of the current record.
    record: usize,
    count: usize,
    /// Whether a variable exceeded the record size.
    too_long: bool,
}

impl Params {
    /// Starts after the existing content of `records`.
    pub fn new(mut records: Vec<u8>, request: u16) -> Params {
        let begin = records.len();
        records.extend_from_slice(&[0; fastcgi::HEADER_LEN]);
        Params {
            records,
            request,
            begin,
            record: begin,
            count: 0,
            too_long: false,
        }
    }

    /// Returns all records.
    pub fn end(mut self) -> Result<Vec<u8>, Failure> {
        self.close_record();
        let total = self.records.len() - self.begin;
        if self.too_long || self.count > MAX_COUNT || total > MAX_TOTAL {
            return Err(too_large());
        }
        Ok(self.records)
    }

    fn close_record(&mut self) {
        let len = self.records.len() - self.record - fastcgi::HEADER_LEN;
        let header = fastcgi::header(fastcgi::PARAMS, self.request, len);
        self.records[self.record..self.record + fastcgi::HEADER_LEN].copy_from_slice(&header);
    }

    #[cold]
    fn next_record(&mut self) {
        self.close_record();
        self.record = self.records.len();
        self.records.extend_from_slice(&[0; fastcgi::HEADER_LEN]);
    }
}

impl Variables for Params {
    // Inlined: if the length of the name is a constant, this takes only a few instructions.
    #[inline(always)]
    fn put(&mut self, name: &[u8], value: &[u8]) {
        let len = name.len() + value.len() + 8;
        self.count += 1;
        if self.records.len() + len > self.record + fastcgi::HEADER_LEN + fastcgi::MAX_CONTENT {
            if len > fastcgi::MAX_CONTENT {
                self.too_long = true;
                return;
            }
            self.next_record();
        }
        fastcgi::put_pair(&mut self.records, name, value);
    }
}

/// The error for variables above PHP's limits.
pub fn too_large() -> Failure {
    Failure::TooLarge("the request's headers exceed PHP's limits")
}
