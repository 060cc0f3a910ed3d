//! A Parquet writer after the format's specification: one row group per million rows, optional columns, dictionaries where values
//! repeat, pages compressed with zstd. DuckDB, Polars, pyarrow and Spark read it.
//!
//! No library is used, because a flat table needs little of the format: the footer in Thrift's compact protocol, the encodings
//! PLAIN and RLE_DICTIONARY, data pages of version 1.

use std::hash::Hash;
use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::{Column, ColumnKind, ExportTable, Field};

/// Rows per row group, the unit that engines skip and read in parallel.
const ROWS_PER_GROUP: usize = 1_000_000;
const ROWS_PER_PAGE: usize = 1 << 17;
/// A column with more distinct values in a row group gets no dictionary.
const MAX_DICTIONARY: usize = 1 << 16;
const MAGIC: &[u8; 4] = b"PAR1";

/// Constants of the specification (parquet.thrift).
mod spec {
    pub(super) const TYPE_INT64: i64 = 2;
    pub(super) const TYPE_BYTE_ARRAY: i64 = 6;
    pub(super) const REPETITION_OPTIONAL: i64 = 1;
    pub(super) const CONVERTED_UTF8: i64 = 0;
    pub(super) const CONVERTED_UINT_64: i64 = 14;
    pub(super) const CONVERTED_INT_64: i64 = 18;
    pub(super) const ENCODING_PLAIN: i64 = 0;
    pub(super) const ENCODING_RLE: i64 = 3;
    pub(super) const ENCODING_RLE_DICTIONARY: i64 = 8;
    pub(super) const CODEC_ZSTD: i64 = 6;
    pub(super) const PAGE_DATA: i64 = 0;
    pub(super) const PAGE_DICTIONARY: i64 = 2;
}

/// Writes a table.
pub fn write(table: &dyn ExportTable, out: &mut dyn Write) -> io::Result<()> {
    let mut out = Counted { out, at: 0 };
    out.write_all(MAGIC)?;
    let mut groups = Vec::new();
    for from in (0..table.len()).step_by(ROWS_PER_GROUP) {
        let to = (from + ROWS_PER_GROUP).min(table.len());
        let columns = table.batch(from..to);
        let start = out.at;
        let mut chunks = Vec::with_capacity(columns.len());
        for column in &columns {
            chunks.push(write_chunk(column, &mut out)?);
        }
        groups.push(Group { rows: to - from, bytes: out.at - start, chunks });
    }
    let footer = footer(table, &groups);
    out.write_all(&footer)?;
    out.write_all(&(footer.len() as u32).to_le_bytes())?;
    out.write_all(MAGIC)?;
    out.flush()
}

struct Counted<'w> {
    out: &'w mut dyn Write,
    at: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.at += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

struct Group {
    rows: usize,
    bytes: u64,
    chunks: Vec<Chunk>,
}

struct Chunk {
    dictionary_at: Option<u64>,
    data_at: u64,
    values: usize,
    uncompressed: u64,
    compressed: u64,
}

fn write_chunk(column: &Column<'_>, out: &mut Counted<'_>) -> io::Result<Chunk> {
    match column {
        Column::Unsigned(values) => chunk(values, |v, bytes| bytes.extend_from_slice(&v.to_le_bytes()), out),
        Column::Signed(values) => chunk(values, |v, bytes| bytes.extend_from_slice(&v.to_le_bytes()), out),
        Column::Text(values) => chunk(
            values,
            |v, bytes| {
                bytes.extend_from_slice(&(v.len() as u32).to_le_bytes());
                bytes.extend_from_slice(v.as_bytes());
            },
            out,
        ),
    }
}

/// Writes one column of one row group: a dictionary page if values repeat, then data pages.
fn chunk<T: Copy + Eq + Hash>(values: &[Option<T>], plain: impl Fn(T, &mut Vec<u8>), out: &mut Counted<'_>) -> io::Result<Chunk> {
    let mut sizes = (0u64, 0u64);
    let dictionary = dictionary(values);
    let mut dictionary_at = None;
    if let Some((distinct, _)) = &dictionary {
        dictionary_at = Some(out.at);
        let mut body = Vec::new();
        for &value in distinct {
            plain(value, &mut body);
        }
        page(
            &body,
            &mut sizes,
            out,
            |thrift| {
                thrift.begin(7);
                thrift.i32(1, distinct.len() as i64);
                thrift.i32(2, spec::ENCODING_PLAIN);
                thrift.end();
            },
            spec::PAGE_DICTIONARY,
        )?;
    }
    let data_at = out.at;
    let mut next = 0;
    let pages = values.chunks(ROWS_PER_PAGE);
    // Readers require a page even in a column without rows.
    for rows in pages.chain(values.is_empty().then_some(&[][..])) {
        let mut body = levels(rows);
        let present = rows.iter().flatten();
        let encoding = match &dictionary {
            Some((distinct, ids)) => {
                let count = present.clone().count();
                let width = bits(distinct.len());
                body.push(width as u8);
                bit_packed(&ids[next..next + count], width, &mut body);
                next += count;
                spec::ENCODING_RLE_DICTIONARY
            }
            None => {
                present.for_each(|&v| plain(v, &mut body));
                spec::ENCODING_PLAIN
            }
        };
        page(
            &body,
            &mut sizes,
            out,
            |thrift| {
                thrift.begin(5);
                thrift.i32(1, rows.len() as i64);
                thrift.i32(2, encoding);
                thrift.i32(3, spec::ENCODING_RLE);
                thrift.i32(4, spec::ENCODING_RLE);
                thrift.end();
            },
            spec::PAGE_DATA,
        )?;
    }
    Ok(Chunk { dictionary_at, data_at, values: values.len(), uncompressed: sizes.0, compressed: sizes.1 })
}

/// Distinct values in order of first use, and the index of each present value; `None` when a dictionary would not pay.
fn dictionary<T: Copy + Eq + Hash>(values: &[Option<T>]) -> Option<(Vec<T>, Vec<u32>)> {
    let mut numbers: FxHashMap<T, u32> = FxHashMap::default();
    let mut distinct = Vec::new();
    let mut ids = Vec::with_capacity(values.len());
    for &value in values.iter().flatten() {
        let id = *numbers.entry(value).or_insert_with(|| {
            distinct.push(value);
            distinct.len() as u32 - 1
        });
        if distinct.len() > MAX_DICTIONARY {
            return None;
        }
        ids.push(id);
    }
    // A dictionary pays only if values repeat.
    (distinct.len() * 2 <= ids.len() && !ids.is_empty()).then_some((distinct, ids))
}

/// Bits needed for numbers below `count`; at least 1, because some readers reject 0.
fn bits(count: usize) -> u32 {
    (usize::BITS - count.saturating_sub(1).leading_zeros()).max(1)
}

/// The definition levels (which rows have a value), preceded by their length.
fn levels<T>(rows: &[Option<T>]) -> Vec<u8> {
    let mut body = Vec::new();
    if rows.iter().all(Option::is_some) {
        varint((rows.len() as u64) << 1, &mut body);
        body.push(1);
    } else {
        let present: Vec<u32> = rows.iter().map(|r| u32::from(r.is_some())).collect();
        bit_packed(&present, 1, &mut body);
    }
    let mut out = (body.len() as u32).to_le_bytes().to_vec();
    out.append(&mut body);
    out
}

/// One bit-packed run of the RLE/bit-packing hybrid: groups of eight values, lowest bits first, the last group padded with zeros.
fn bit_packed(values: &[u32], width: u32, out: &mut Vec<u8>) {
    let groups = values.len().div_ceil(8);
    varint((groups as u64) << 1 | 1, out);
    let (mut buffer, mut filled) = (0u64, 0u32);
    for i in 0..groups * 8 {
        buffer |= u64::from(values.get(i).copied().unwrap_or(0)) << filled;
        filled += width;
        while filled >= 8 {
            out.push(buffer as u8);
            buffer >>= 8;
            filled -= 8;
        }
    }
}

/// Writes a page: the header, then the compressed body. `kind` fills in the part of the header that depends on the page type.
fn page(
    body: &[u8],
    sizes: &mut (u64, u64),
    out: &mut Counted<'_>,
    kind: impl FnOnce(&mut Thrift),
    page_type: i64,
) -> io::Result<()> {
    let packed = zstd::bulk::compress(body, 3)?;
    let mut header = Thrift::default();
    header.i32(1, page_type);
    header.i32(2, body.len() as i64);
    header.i32(3, packed.len() as i64);
    kind(&mut header);
    let header = header.finish();
    out.write_all(&header)?;
    out.write_all(&packed)?;
    sizes.0 += (header.len() + body.len()) as u64;
    sizes.1 += (header.len() + packed.len()) as u64;
    Ok(())
}

fn physical(field: &Field) -> (i64, i64) {
    match field.kind {
        ColumnKind::Unsigned => (spec::TYPE_INT64, spec::CONVERTED_UINT_64),
        ColumnKind::Signed => (spec::TYPE_INT64, spec::CONVERTED_INT_64),
        ColumnKind::Text => (spec::TYPE_BYTE_ARRAY, spec::CONVERTED_UTF8),
    }
}

fn footer(table: &dyn ExportTable, groups: &[Group]) -> Vec<u8> {
    let fields = table.fields();
    let mut t = Thrift::default();
    t.i32(1, 1);
    t.list(2, 12, fields.len() + 1);
    t.element();
    t.binary(4, b"schema");
    t.i32(5, fields.len() as i64);
    t.end();
    for field in fields {
        let (physical, converted) = physical(field);
        t.element();
        t.i32(1, physical);
        t.i32(3, spec::REPETITION_OPTIONAL);
        t.binary(4, field.name.as_bytes());
        t.i32(6, converted);
        t.end();
    }
    t.i64(3, table.len() as i64);
    t.list(4, 12, groups.len());
    for group in groups {
        t.element();
        t.list(1, 12, group.chunks.len());
        for (chunk, field) in group.chunks.iter().zip(fields) {
            t.element();
            t.i64(2, chunk.dictionary_at.unwrap_or(chunk.data_at) as i64);
            t.begin(3);
            t.i32(1, physical(field).0);
            let encodings = [spec::ENCODING_PLAIN, spec::ENCODING_RLE, spec::ENCODING_RLE_DICTIONARY];
            t.list(2, 5, encodings.len());
            encodings.iter().for_each(|&e| t.zigzag(e));
            t.list(3, 8, 1);
            t.bytes(field.name.as_bytes());
            t.i32(4, spec::CODEC_ZSTD);
            t.i64(5, chunk.values as i64);
            t.i64(6, chunk.uncompressed as i64);
            t.i64(7, chunk.compressed as i64);
            t.i64(9, chunk.data_at as i64);
            if let Some(at) = chunk.dictionary_at {
                t.i64(11, at as i64);
            }
            t.end();
            t.end();
        }
        t.i64(2, group.bytes as i64);
        t.i64(3, group.rows as i64);
        t.end();
    }
    t.binary(6, concat!("vramscope version ", env!("CARGO_PKG_VERSION")).as_bytes());
    t.finish()
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The part of Thrift's compact protocol that the metadata needs.
#[derive(Default)]
struct Thrift {
    out: Vec<u8>,
    last: i16,
    stack: Vec<i16>,
}

impl Thrift {
    fn field(&mut self, id: i16, kind: u8) {
        // Field ids increase by less than 16 in everything written here.
        self.out.push(((id - self.last) as u8) << 4 | kind);
        self.last = id;
    }

    fn zigzag(&mut self, value: i64) {
        varint((value << 1 ^ value >> 63) as u64, &mut self.out);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        varint(bytes.len() as u64, &mut self.out);
        self.out.extend_from_slice(bytes);
    }

    fn i32(&mut self, id: i16, value: i64) {
        self.field(id, 5);
        self.zigzag(value);
    }

    fn i64(&mut self, id: i16, value: i64) {
        self.field(id, 6);
        self.zigzag(value);
    }

    fn binary(&mut self, id: i16, bytes: &[u8]) {
        self.field(id, 8);
        self.bytes(bytes);
    }

    fn list(&mut self, id: i16, element: u8, length: usize) {
        self.field(id, 9);
        if length < 15 {
            self.out.push((length as u8) << 4 | element);
        } else {
            self.out.push(0xf0 | element);
            varint(length as u64, &mut self.out);
        }
    }

    fn begin(&mut self, id: i16) {
        self.field(id, 12);
        self.element();
    }

    /// Begins a struct as a list element.
    fn element(&mut self) {
        self.stack.push(std::mem::take(&mut self.last));
    }

    fn end(&mut self) {
        self.out.push(0);
        self.last = self.stack.pop().unwrap_or(0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.out.push(0);
        self.out
    }
}
