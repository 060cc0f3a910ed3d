//! Parses sizes, ranges, rates and settings. Each error is a sentence that says what to write.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Parses one of several names, each with a description. A second name after a bar is accepted too but not listed.
pub(in crate::cli) fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    choices: [(&'static str, &'static str, T); N],
) -> impl TypedValueParser<Value = T> {
    let listed = choices.map(|(names, about, _)| {
        let (name, other) = names.split_once('|').map_or((names, None), |(name, other)| (name, Some(other)));
        PossibleValue::new(name).help(about).aliases(other)
    });
    PossibleValuesParser::new(listed).map(move |typed| {
        // The parser accepts only these names.
        choices.iter().find(|(names, ..)| names.split('|').any(|name| name == typed)).map_or(choices[0].2, |found| found.2)
    })
}

/// Reads a share from 0 to 1.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("\"{text}\" is not a share from 0 to 1")),
    }
}

/// Accepts a settings string that PyTorch would accept.
pub(super) fn parse_conf(text: &str) -> Result<String, String> {
    // The name that the output uses for PyTorch's defaults.
    if ["default", "defaults", "(defaults)"].contains(&text.trim()) {
        return Ok(String::new());
    }
    let text = vramscope_core::inference::whatif::settings_of(text);
    if !text.contains(':') && text.contains(['.', '/', '\\']) {
        return Err("this is no setting such as expandable_segments:True, and no file has this name".to_owned());
    }
    vramscope_core::model::AllocConf::parse(text).map(|_| text.to_owned()).map_err(|e| e.to_string())
}

/// Parses a limit on memory, `60GiB`. Refuses small numbers without a unit.
pub(super) fn parse_limit(text: &str) -> Result<u64, String> {
    vramscope_core::units::Bytes::parse_limit(text).map(|b| b.0).map_err(|e| e.to_string())
}

/// Parses the memory of a card, at most 1 TiB, which is more than any card has.
pub(super) fn parse_cap(text: &str) -> Result<u64, String> {
    match parse_limit(text)? {
        cap if cap > 1 << 40 => Err("no GPU has more than 1 TiB".to_owned()),
        cap => Ok(cap),
    }
}

/// Parses the size of a run, `batch=8,seq=512`.
pub(super) fn parse_size_of_run(text: &str) -> Result<vramscope_core::plan::Size, String> {
    vramscope_core::plan::Size::parse(text)
}

/// Parses a positive number of seconds.
pub(super) fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s.is_finite() && s > 0.0 && s <= 1e9 => Ok(s),
        _ => Err(format!("\"{text}\" is not a number of seconds above 0")),
    }
}

/// Parses a rate from 0.1 to 50 per second.
pub(super) fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(hz) if (0.1..=vramscope_live::live::Rates::HIGHEST_MEMORY).contains(&hz) => Ok(hz),
        _ => Err(format!("\"{text}\" is not a rate from 0.1 to 50 a second")),
    }
}

/// Reads `1000..2000`.
pub(super) fn parse_range(text: &str) -> Result<(u32, u32), String> {
    let (from, to) = text
        .split_once("..")
        .and_then(|(from, to)| Some((from.trim().parse().ok()?, to.trim().parse().ok()?)))
        .ok_or("write the first event and the one after the last, as in 1000..2000")?;
    if from < to {
        return Ok((from, to));
    }
    // A reversed range is refused, because its meaning is unclear.
    Err(format!("no event is from {from} on and before {to}; write the first event and the one after the last, as in 1000..2000"))
}

/// Most pixels of a picture: 8K. A larger one takes gigabytes and many minutes.
const MOST_PIXELS: u32 = 7680 * 4320;

/// Parses `1600x1000`. Smaller pictures than 64 pixels are unreadable.
pub(super) fn parse_size(text: &str) -> Result<(u32, u32), String> {
    let side = |s: &str| s.trim().parse::<u32>().ok().filter(|n| (64..=16384).contains(n));
    text.split_once(['x', 'X']).and_then(|(w, h)| Some((side(w)?, side(h)?))).filter(|(w, h)| w * h <= MOST_PIXELS).ok_or_else(
        || "write width x height in pixels, each from 64 to 16384 and together at most 7680x4320, as in 1600x1000".to_owned(),
    )
}

/// Parses a number of rows, at least 1.
pub(in crate::cli) fn parse_rows(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(rows) if rows > 0 => Ok(rows),
        _ => Err("write how many rows are to be shown, from 1 on; sizes are chosen with --where, as in 'size>2GiB'".to_owned()),
    }
}
