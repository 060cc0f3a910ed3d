//! Containers around an artefact: gzip, zstd, and the zip that `torch.save` writes.

use std::io::{Cursor, Read};

use super::FormatError;
use crate::model::{Cancelled, Progress};

/// Unpacked bytes, and whether the container ended early.
pub(crate) struct Unwrapped {
    pub(crate) bytes: Vec<u8>,
    pub(crate) truncated: bool,
}

/// No artefact compresses better than this; what does is made to exhaust memory.
const MAX_RATIO: u64 = 400;
/// Small files may still unpack to this much.
const MIN_LIMIT: u64 = 64 << 20;

/// Inflates gzip, all members.
pub(crate) fn gzip(bytes: &[u8], name: &str, progress: &Progress) -> Result<Unwrapped, FormatError> {
    read_all(flate2::read::MultiGzDecoder::new(bytes), bytes.len(), name, progress)
}

/// Inflates zstd.
pub(crate) fn zstd(bytes: &[u8], name: &str, progress: &Progress) -> Result<Unwrapped, FormatError> {
    let decoder = zstd::stream::read::Decoder::new(bytes).map_err(|error| broken(name, 0, &error))?;
    read_all(decoder, bytes.len(), name, progress)
}

/// Takes the pickle out of what `torch.save` wrote, or the only file of a zip.
pub(crate) fn zip(bytes: &[u8], name: &str, progress: &Progress) -> Result<Unwrapped, FormatError> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| FormatError::Malformed {
        name: name.to_owned(),
        offset: bytes.len() as u64,
        what: format!("the zip container can not be read ({error})"),
    })?;
    let names: Vec<String> = archive.file_names().filter_map(Result::ok).map(std::borrow::Cow::into_owned).collect();
    let wanted = names
        .iter()
        .find(|entry| entry.as_str() == "data.pkl" || entry.ends_with("/data.pkl"))
        .or_else(|| names.iter().find(|entry| [".pickle", ".pkl", ".json"].iter().any(|end| entry.ends_with(end))));
    let Some(wanted) = wanted else {
        return Err(FormatError::Empty {
            name: name.to_owned(),
            what: "this zip holds neither data.pkl nor another pickle or JSON file".to_owned(),
        });
    };
    let file = archive.by_name(wanted).map_err(|error| FormatError::Malformed {
        name: name.to_owned(),
        offset: 0,
        what: format!("{wanted} inside the zip can not be read ({error})"),
    })?;
    read_all(file, bytes.len(), name, progress)
}

fn read_all(mut reader: impl Read, packed: usize, name: &str, progress: &Progress) -> Result<Unwrapped, FormatError> {
    let limit = (packed as u64).saturating_mul(MAX_RATIO).max(MIN_LIMIT);
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 1 << 18];
    loop {
        progress.check().map_err(|Cancelled| FormatError::Cancelled)?;
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(Unwrapped { bytes, truncated: false }),
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // A damaged or cut container: what came out before is still good.
            Err(_) if !bytes.is_empty() => return Ok(Unwrapped { bytes, truncated: true }),
            Err(error) => return Err(broken(name, 0, &error)),
        }
        if bytes.len() as u64 > limit {
            return Err(FormatError::TooLarge {
                name: name.to_owned(),
                offset: packed as u64,
                what: format!("it unpacks to more than {limit} bytes, {MAX_RATIO} times its size"),
            });
        }
    }
}

fn broken(name: &str, offset: u64, error: &std::io::Error) -> FormatError {
    FormatError::Malformed { name: name.to_owned(), offset, what: format!("the compressed data can not be unpacked ({error})") }
}
