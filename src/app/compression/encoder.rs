//! Encoders for the codings that Surus writes. They compress into memory and never wait.

use std::cell::RefCell;
use std::io;

use async_compression::Level;
use async_compression::brotli::EncoderParams;
use async_compression::tokio::write::{BrotliEncoder, GzipEncoder, ZstdEncoder};
use async_compression::zstd::CParameter;
use bytes::Bytes;
use futures_util::FutureExt;
use tokio::io::AsyncWriteExt;

use super::Coding;

/// Uses an encoder that the thread keeps. Creating one takes two thirds of the time that a page of
/// 10 KB takes.
pub(super) fn zstd_at_once(plain: &[u8]) -> io::Result<Bytes> {
    thread_local! {
        static KEPT: RefCell<Option<zstd::bulk::Compressor<'static>>> =
            const { RefCell::new(None) };
    }
    KEPT.with_borrow_mut(|kept| {
        let compressor = match kept {
            Some(compressor) => compressor,
            None => kept.insert(zstd::bulk::Compressor::new(ZSTD)?),
        };
        Ok(compressor.compress(plain)?.into())
    })
}

/// Compresses into memory, so it never waits.
pub(super) enum Encoder {
    /// Much larger than the others.
    Brotli(Box<BrotliEncoder<Vec<u8>>>),
    Zstd(ZstdEncoder<Vec<u8>>),
    Gzip(GzipEncoder<Vec<u8>>),
}

macro_rules! of {
    ($encoder:expr, $inner:ident => $do:expr) => {
        match $encoder {
            Encoder::Brotli($inner) => $do,
            Encoder::Zstd($inner) => $do,
            Encoder::Gzip($inner) => $do,
        }
    };
}

const ZSTD: i32 = 3;

impl Encoder {
    /// The qualities at which one core compresses faster than most networks transfer the result.
    pub(super) fn new(coding: Coding) -> Encoder {
        match coding {
            Coding::Brotli => {
                // A window of 512 KiB, like zstd's below. The default of 4 MiB costs more memory
                // per response than pages gain from it.
                let params = EncoderParams::default();
                let params = params
                    .quality(Level::Precise(4))
                    .window_size(19)
                    .text_mode();
                Encoder::Brotli(Box::new(BrotliEncoder::with_params(Vec::new(), params)))
            }
            Coding::Zstd => Encoder::Zstd(ZstdEncoder::with_quality_and_params(
                Vec::new(),
                Level::Precise(ZSTD),
                &[CParameter::window_log(19)],
            )),
            Coding::Gzip => Encoder::Gzip(GzipEncoder::with_quality(Vec::new(), Level::Precise(5))),
        }
    }

    pub(super) fn write(&mut self, plain: &[u8]) -> io::Result<()> {
        of!(self, e => now(e.write_all(plain)))
    }

    /// Everything written so far, in decodable form.
    pub(super) fn flush(&mut self) -> io::Result<Bytes> {
        of!(self, e => { now(e.flush())?; Ok(std::mem::take(e.get_mut()).into()) })
    }

    /// The remaining bytes.
    pub(super) fn finish(&mut self) -> io::Result<Bytes> {
        of!(self, e => { now(e.shutdown())?; Ok(std::mem::take(e.get_mut()).into()) })
    }
}

fn now(done: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    done.now_or_never()
        .unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into()))
}
