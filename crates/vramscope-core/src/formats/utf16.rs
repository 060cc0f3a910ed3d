//! Texts in UTF-16, which Windows' shells write.

use std::borrow::Cow;

/// True for UTF-16, in which Windows' shells write logs, with or without a byte order mark.
pub fn is_utf16(bytes: &[u8]) -> bool {
    utf16(bytes).is_some()
}

/// The text of a log in UTF-8 or UTF-16.
pub fn decoded(bytes: &[u8]) -> Cow<'_, str> {
    let Some((is_big, body)) = utf16(bytes) else { return String::from_utf8_lossy(bytes) };
    let unit = |pair: &[u8]| {
        let pair = [pair[0], pair[1]];
        if is_big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
    };
    let units = body.chunks_exact(2).map(unit);
    Cow::Owned(char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
}

/// The UTF-16 bytes after the byte order mark, and whether they are big-endian; `None` for other encodings.
fn utf16(bytes: &[u8]) -> Option<(bool, &[u8])> {
    match bytes {
        [0xff, 0xfe, rest @ ..] => return Some((false, rest)),
        [0xfe, 0xff, rest @ ..] => return Some((true, rest)),
        _ => {}
    }
    // Without a mark: in mostly Latin text every other byte is zero.
    let head = &bytes[..bytes.len().min(4096) & !1];
    let zeros = |from: usize| head.iter().skip(from).step_by(2).filter(|b| **b == 0).count();
    let most = head.len() * 2 / 5;
    match (zeros(0), zeros(1)) {
        (0, odd) if odd > most => Some((false, bytes)),
        (even, 0) if even > most => Some((true, bytes)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_windows_are_text() {
        let text = "CUDA out of memory.\nüber";
        let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for (mark, body) in [(&[0xff, 0xfe][..], &little), (&[], &little), (&[0xfe, 0xff], &big), (&[], &big)] {
            assert_eq!(decoded(&[mark, body].concat()), text);
        }
        assert_eq!(decoded(text.as_bytes()), text);
        assert_eq!(decoded(&[]), "");
        assert_eq!(decoded(&[0xff, 0xfe, 0x41]), "");
        assert!(!decoded(&[0; 64]).is_empty());
    }
}
