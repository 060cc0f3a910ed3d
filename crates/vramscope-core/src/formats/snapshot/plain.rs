//! Reads the values of a typical entry without a stack machine: integers, stores, and lists of fetched items.
//!
//! No function here checks for the end of the file: the caller guarantees a margin after `p`.

use super::super::pickle::{Op, little_endian, opcodes as op};

/// Skips an opcode that stores the value before it; returns the memo id.
#[inline]
pub(super) fn skip_store(b: &[u8], p: &mut usize, id: &mut u64) -> Option<u64> {
    let stored = match b[*p] {
        op::MEMOIZE => {
            *p += 1;
            *id
        }
        op::BINPUT => {
            *p += 2;
            u64::from(b[*p - 1])
        }
        op::LONG_BINPUT => {
            *p += 5;
            little_endian(&b[*p - 4..*p])
        }
        _ => return None,
    };
    *id += 1;
    Some(stored)
}

/// The memo id of the object that is fetched here. `None` for anything else.
#[inline]
pub(super) fn fetched(b: &[u8], p: &mut usize) -> Option<u64> {
    let at = *p;
    match b[at] {
        op::BINGET => {
            *p = at + 2;
            Some(u64::from(b[at + 1]))
        }
        op::LONG_BINGET => {
            *p = at + 5;
            Some(little_endian(&b[at + 1..at + 5]))
        }
        _ => None,
    }
}

/// An integer; negative ones as unsigned two's complement. `None` for anything else.
#[inline]
pub(super) fn integer(b: &[u8], p: &mut usize) -> Option<u64> {
    let at = *p;
    match b[at] {
        op::LONG1 => {
            let n = usize::from(b[at + 1]);
            *p = at + 2 + n;
            let wide = |from: usize| b.get(from..from + 8).and_then(|w| w.try_into().ok()).map(u64::from_le_bytes);
            match n {
                1..=8 => {
                    let unused = 64 - 8 * n as u32;
                    Some(((wide(at + 2)? << unused) as i64 >> unused) as u64)
                }
                // From 2^63 on a positive number needs a ninth byte for its sign.
                9 if b[at + 10] == 0 => wide(at + 2),
                0 => Some(0),
                _ => None,
            }
        }
        op::BININT1 => {
            *p = at + 2;
            Some(u64::from(b[at + 1]))
        }
        op::BININT2 => {
            *p = at + 3;
            Some(u64::from(b[at + 1]) | u64::from(b[at + 2]) << 8)
        }
        op::BININT => {
            *p = at + 5;
            Some(i64::from(little_endian(&b[at + 1..at + 5]) as u32 as i32) as u64)
        }
        _ => None,
    }
}

/// A list after its `EMPTY_LIST`: the bytes that fetch its items, and the position after it. `None` if an item is not fetched.
#[inline]
pub(super) fn list_body(b: &[u8], from: usize, limit: usize) -> Option<(&[u8], usize)> {
    if b[from] != op::MARK {
        // An empty list, or a single item.
        let next = match b[from] {
            op::BINGET => from + 2,
            op::LONG_BINGET => from + 5,
            op::EMPTY_DICT => return None,
            _ => return Some((&b[from..from], from)),
        };
        return if b[next] == op::APPEND {
            (b[next + 1] != op::MARK).then_some((&b[from..next], next + 1))
        } else {
            Some((&b[from..from], from))
        };
    }
    let start = from + 1;
    let mut p = start;
    loop {
        if p >= limit {
            return None;
        }
        match b[p] {
            op::BINGET => p += 2,
            op::LONG_BINGET => p += 5,
            op::FRAME => p += 9,
            op::APPENDS => break,
            _ => return None,
        }
    }
    (b[p + 1] != op::MARK).then_some((&b[start..p], p + 1))
}

/// Like [`list_body`] for a list in which some dicts are written in full, as in the first stack with a frame. Returns the memo
/// ids of the items, the position after the list and the next memo id. `id` is the next one at `from`.
pub(super) fn mixed_body(b: &[u8], from: usize, mut id: u64, limit: usize) -> Option<(Vec<u64>, usize, u64)> {
    if b[from] != op::MARK {
        return None;
    }
    let mut items = Vec::new();
    let mut p = from + 1;
    while p < limit {
        match b[p] {
            op::FRAME => p += 9,
            op::BINGET | op::LONG_BINGET => items.extend(fetched(b, &mut p)),
            op::EMPTY_DICT => items.push(skip_dict(b, &mut p, &mut id, limit)?),
            op::APPENDS => return (b[p + 1] != op::MARK).then_some((items, p + 1, id)),
            _ => return None,
        }
    }
    None
}

/// Skips a dict of texts and integers; returns its memo id.
fn skip_dict(b: &[u8], p: &mut usize, id: &mut u64, limit: usize) -> Option<u64> {
    *p += 1;
    let stored = skip_store(b, p, id);
    if b[*p] != op::MARK {
        return None;
    }
    *p += 1;
    while *p < limit {
        match b[*p] {
            op::SETITEMS => {
                *p += 1;
                let stored = stored.or_else(|| skip_store(b, p, id));
                return stored.filter(|_| b[*p] != op::MARK);
            }
            op::MEMOIZE | op::BINPUT | op::LONG_BINPUT => _ = skip_store(b, p, id),
            op::FRAME
            | op::BINGET
            | op::LONG_BINGET
            | op::SHORT_BINUNICODE
            | op::BINUNICODE
            | op::BININT
            | op::BININT1
            | op::BININT2
            | op::LONG1 => *p = Op::read(b, *p).ok()?.next,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_old_and_new_dicts_gives_the_ids_of_both() {
        let body = |bytes: &[u8], id| {
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len() + 300, b'u');
            mixed_body(&padded, 0, id, padded.len())
        };
        let python = b"(h\x01}\x94(h\x05\x8c\x01f\x94h\x06K\x07uj\x02\x00\x00\x00}\x94(h\x05K\x01ueu";
        assert_eq!(body(python, 20), Some((vec![1, 20, 2, 22], python.len() - 1, 23)));
        let cpp = b"(}(h\x05K\x01uq\x09eu";
        assert_eq!(body(cpp, 9), Some((vec![9], cpp.len() - 1, 10)));
        // Filled twice, not stored, or not a dict.
        assert_eq!(body(b"(}\x94(h\x05K\x01u(h\x06K\x02ueu", 3), None);
        assert_eq!(body(b"(}(h\x05K\x01ueu", 3), None);
        assert_eq!(body(b"(}\x94(h\x05]ueu", 3), None);
        assert_eq!(body(b"(h\x01e(h\x02eu", 3), None);
    }

    fn int(bytes: &[u8]) -> Option<u64> {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len() + 300, 0xee);
        let mut p = 0;
        let value = integer(&padded, &mut p);
        assert!(value.is_none() || p == bytes.len());
        value
    }

    #[test]
    fn integers_of_every_width() {
        assert_eq!(int(b"K\xff"), Some(255));
        assert_eq!(int(b"M\x01\x02"), Some(513));
        assert_eq!(int(b"J\xff\xff\xff\xff"), Some(u64::MAX));
        assert_eq!(int(b"\x8a\x00"), Some(0));
        assert_eq!(int(b"\x8a\x01\xff"), Some(u64::MAX));
        assert_eq!(int(b"\x8a\x06\x00\x02\x00\x00\x12\x7f"), Some(0x7f12_0000_0200));
        assert_eq!(int(b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00"), Some(1 << 63));
        assert_eq!(int(b"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\xff"), None);
        assert_eq!(int(b"N"), None);
    }

    #[test]
    fn a_list_body_ends_where_nothing_can_fill_it_further() {
        let body = |bytes: &[u8]| {
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len() + 300, b'u');
            list_body(&padded, 0, padded.len()).map(|(body, next)| (body.to_vec(), next))
        };
        assert_eq!(body(b"(h\x01j\x01\x00\x00\x00eu"), Some((b"h\x01j\x01\x00\x00\x00".to_vec(), 9)));
        assert_eq!(body(b"h\x01au"), Some((b"h\x01".to_vec(), 3)));
        assert_eq!(body(b"h\x01K\x00u"), Some((vec![], 0)));
        assert_eq!(body(b"(h\x01e(h\x02eu"), None);
        assert_eq!(body(b"(}e"), None);
    }
}
