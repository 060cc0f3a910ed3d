//! [`Op`]: one opcode with its operand, read with every length checked.

use super::PickleError;
use super::opcodes::{self, Operand};

/// An opcode, its operand (without length prefix or line end) and the position of the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op<'a> {
    pub(crate) code: u8,
    pub(crate) operand: &'a [u8],
    pub(crate) next: usize,
}

impl<'a> Op<'a> {
    /// Reads the opcode at `pos`. Fails with [`PickleError::Truncated`] when it does not end within `bytes`,
    /// [`PickleError::Malformed`] when it is not an opcode.
    pub(crate) fn read(bytes: &'a [u8], pos: usize) -> Result<Self, PickleError> {
        let offset = pos as u64;
        let cut = || PickleError::Truncated { offset };
        let code = *bytes.get(pos).ok_or_else(cut)?;
        // The most frequent opcodes in files with shared frames, so they are checked first.
        let fetched = match code {
            opcodes::BINGET => 1,
            opcodes::LONG_BINGET => 4,
            _ => 0,
        };
        if fetched > 0 {
            let next = pos + 1 + fetched;
            return Ok(Op { code, operand: bytes.get(pos + 1..next).ok_or_else(cut)?, next });
        }
        let Some(operand) = opcodes::operand(code) else {
            return Err(PickleError::Malformed { offset, what: format!("{code:#04x} is no pickle opcode") });
        };
        let from = pos + 1;
        let (operand, next) = match operand {
            Operand::None => (&bytes[from..from], from),
            Operand::Fixed(n) => {
                let to = from + usize::from(n);
                (bytes.get(from..to).ok_or_else(cut)?, to)
            }
            Operand::Counted(n) => {
                let at = from + usize::from(n);
                let length = little_endian(bytes.get(from..at).ok_or_else(cut)?);
                let to = usize::try_from(length).ok().and_then(|l| at.checked_add(l)).ok_or_else(cut)?;
                (bytes.get(at..to).ok_or_else(cut)?, to)
            }
            Operand::Line => line(bytes, from).ok_or_else(cut)?,
            Operand::TwoLines => {
                let (_, second) = line(bytes, from).ok_or_else(cut)?;
                line(bytes, second).ok_or_else(cut)?
            }
        };
        Ok(Op { code, operand, next })
    }
}

/// The bytes up to the next `\n`, and the position after it.
fn line(bytes: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(from..)?;
    let length = rest.iter().position(|&b| b == b'\n')?;
    Some((&rest[..length], from + length + 1))
}

/// Reads at most eight bytes, least significant first.
pub(crate) fn little_endian(bytes: &[u8]) -> u64 {
    match *bytes {
        [only] => u64::from(only),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        _ => bytes.iter().take(8).rev().fold(0, |value, &b| value << 8 | u64::from(b)),
    }
}
