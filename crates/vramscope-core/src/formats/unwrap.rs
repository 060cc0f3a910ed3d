//! Containers: gzip, zstd, and the zip that `torch.save` writes.

use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use super::{FormatError, open_regular};
use crate::model::{Cancelled, Progress};
use crate::units::Bytes;

/// Unpacked bytes, and whether the container ended early.
pub(crate) struct Unwrapped {
    pub(crate) bytes: Vec<u8>,
    pub(crate) truncated: bool,
}

/// No genuine file compresses better than this; higher ratios are made to exhaust memory.
const MAX_RATIO: u64 = 400;
/// Small files may still unpack to this size.
const MIN_LIMIT: u64 = 16 << 20;
/// gzip inside zip inside HTML is enough.
const MAX_LAYERS: u32 = 4;

/// The containers around a file. The limit applies to the sum of all layers; otherwise a kilobyte could become gigabytes in a few of them.
#[derive(Debug)]
pub(crate) struct Layers {
    count: u32,
    most: u64,
    unpacked: u64,
    /// The chosen snapshot of a page with several.
    pub(crate) choice: Option<String>,
}

impl Layers {
    /// No containers yet, around a file of `file` bytes.
    pub(crate) fn around(file: usize) -> Self {
        Layers { count: 0, most: (file as u64).saturating_mul(MAX_RATIO).max(MIN_LIMIT), unpacked: 0, choice: None }
    }
}

/// Assumed compression ratio if the file does not contain its unpacked size: about that of traces, which compress best.
const USUAL_RATIO: u64 = 16;

/// Unpacked size of a file in bytes, from the last four bytes of a gzip file or the header of a zstd frame; if it is not there,
/// 16 times the packed size. For other files their own size, and 0 if the file cannot be read. Reads a few bytes.
/// This is an estimate: a gzip file with several members contains only the size of the last one.
pub fn unpacked_bytes(path: &Path) -> u64 {
    let packed = std::fs::metadata(path).map_or(0, |m| m.len());
    let told = || -> std::io::Result<Option<u64>> {
        let mut file = open_regular(path)?;
        let mut head = Vec::new();
        // Maximum length of a zstd frame header.
        (&mut file).take(18).read_to_end(&mut head)?;
        Ok(match head.as_slice() {
            [0x1f, 0x8b, ..] => {
                let mut end = [0; 4];
                file.seek(SeekFrom::End(-4))?;
                file.read_exact(&mut end)?;
                Some(u64::from(u32::from_le_bytes(end)))
            }
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(zstd::zstd_safe::get_frame_content_size(&head).ok().flatten().unwrap_or(0)),
            _ => None,
        })
    };
    match told().unwrap_or(None) {
        None => packed,
        // Smaller than packed, or an impossible ratio: several members, more than 4 GiB, or truncated.
        Some(bytes) if bytes < packed || bytes / MAX_RATIO > packed => packed.saturating_mul(USUAL_RATIO),
        Some(bytes) => bytes,
    }
}

/// Unpacks all members of a gzip file.
pub(crate) fn gzip(bytes: &[u8], name: &str, layers: &mut Layers, progress: &Progress) -> Result<Unwrapped, FormatError> {
    read_all(flate2::read::MultiGzDecoder::new(bytes), name, layers, progress)
}

pub(crate) fn zstd(bytes: &[u8], name: &str, layers: &mut Layers, progress: &Progress) -> Result<Unwrapped, FormatError> {
    let decoder = zstd::stream::read::Decoder::new(bytes).map_err(|error| broken(name, 0, &error))?;
    read_all(decoder, name, layers, progress)
}

/// Extracts the pickle from a `torch.save` file, or the only file of a zip.
pub(crate) fn zip(bytes: &[u8], name: &str, layers: &mut Layers, progress: &Progress) -> Result<Unwrapped, FormatError> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| FormatError::Malformed {
        name: name.to_owned(),
        offset: bytes.len() as u64,
        what: format!("the zip container cannot be read ({error})"),
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
        what: format!("{wanted} inside the zip cannot be read ({error})"),
    })?;
    read_all(file, name, layers, progress)
}

fn read_all(mut reader: impl Read, name: &str, layers: &mut Layers, progress: &Progress) -> Result<Unwrapped, FormatError> {
    let too_large = |offset: usize, what| FormatError::TooLarge { name: name.to_owned(), offset: offset as u64, what };
    layers.count += 1;
    if layers.count > MAX_LAYERS {
        return Err(too_large(0, format!("more than {MAX_LAYERS} containers inside each other")));
    }
    let mut bytes: Vec<u8> = Vec::new();
    let mut chunk = vec![0; 1 << 18];
    loop {
        progress.check().map_err(|Cancelled| FormatError::Cancelled)?;
        match reader.read(&mut chunk) {
            Ok(0) => return Ok(Unwrapped { bytes, truncated: false }),
            Ok(n) if layers.unpacked + n as u64 <= layers.most => {
                layers.unpacked += n as u64;
                bytes.extend_from_slice(&chunk[..n]);
            }
            Ok(_) => {
                return Err(too_large(
                    bytes.len(),
                    format!("it unpacks to more than {}, which no recording of its size does", Bytes(layers.most)),
                ));
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // The container is damaged or truncated; the bytes before are good.
            Err(_) if !bytes.is_empty() => return Ok(Unwrapped { bytes, truncated: true }),
            Err(error) => return Err(broken(name, 0, &error)),
        }
    }
}

fn broken(name: &str, offset: u64, error: &std::io::Error) -> FormatError {
    FormatError::Malformed { name: name.to_owned(), offset, what: format!("the compressed data cannot be unpacked ({error})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_packed_file_tells_what_it_unpacks_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let content: Vec<u8> = (10_000..20_000).flat_map(|n: u32| format!("{n} ").into_bytes()).collect();
        let put = |bytes: &[u8]| std::fs::write(&path, bytes).unwrap();
        put(&content);
        assert_eq!(unpacked_bytes(&path), 60_000, "as it is");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&content).unwrap();
        let gzip = gzip.finish().unwrap();
        put(&gzip);
        assert_eq!(unpacked_bytes(&path), 60_000);
        put(&gzip[..40]);
        assert!(unpacked_bytes(&path) >= 40, "cut short: a guess");
        put(&zstd::bulk::compress(&content, 1).unwrap());
        assert_eq!(unpacked_bytes(&path), 60_000);
        assert_eq!(unpacked_bytes(&folder.path().join("none")), 0);
    }
}
