//! Limits the size of an answer and gives access to the rest. Each cut is named by its JSON pointer. The same question with that
//! pointer and an offset returns the next part.

use serde_json::{Map, Value, json};

/// Bytes reserved for the list of what was cut.
const RESERVE: usize = 700;

/// Limits to try in order, until the answer fits: items of outer lists and objects, items of nested ones, characters of a text.
const MOST: [(usize, usize, usize); 15] = [
    (1_000, 50, 4_000),
    (400, 20, 2_000),
    (200, 20, 1_000),
    (200, 8, 1_000),
    (100, 8, 600),
    (60, 6, 600),
    (40, 4, 600),
    (25, 4, 400),
    (15, 4, 400),
    (15, 2, 300),
    (8, 2, 300),
    (4, 2, 200),
    (2, 1, 120),
    (1, 1, 120),
    (1, 0, 80),
];

/// Levels that are kept, to try in order where the limits above are not enough, with the first item of each list; and whether
/// records keep the names of what they lose.
const LEVELS: [(usize, bool); 5] = [(4, true), (3, true), (3, false), (2, false), (1, false)];

struct Cut {
    pointer: String,
    shown: usize,
    of: usize,
}

/// The answer in at most `limit` characters. `at` selects a part of it: a JSON pointer, and the first item or character. Fails
/// when nothing is at the pointer.
pub(super) fn bound(whole: &Value, at: Option<(&str, usize)>, limit: usize) -> Result<String, String> {
    let Some((pointer, offset)) = at else { return Ok(fit(whole, limit)) };
    let Some(part) = whole.pointer(pointer) else {
        return Err(format!("the answer has nothing at {pointer:?}; take a pointer from `cut`"));
    };
    Ok(match part {
        Value::Array(items) => page(pointer, offset, items.len(), limit, |i| items[i].clone()),
        Value::Object(map) => {
            let entries: Vec<(&String, &Value)> = map.iter().collect();
            page(pointer, offset, entries.len(), limit, |i| json!({ "key": entries[i].0, "value": entries[i].1 }))
        }
        Value::String(text) => {
            let of = text.chars().count();
            // An escaped character may take six characters.
            let shown: String = text.chars().skip(offset).take(limit.saturating_sub(RESERVE) / 6).collect();
            let next = offset.saturating_add(shown.chars().count());
            json!({ "pointer": pointer, "offset": offset, "of": of, "next_offset": (next < of).then_some(next), "text": shown })
                .to_string()
        }
        other => json!({ "pointer": pointer, "value": other }).to_string(),
    })
}

/// As many items from `offset` on as fit, but at least one.
fn page(pointer: &str, offset: usize, of: usize, limit: usize, item: impl Fn(usize) -> Value) -> String {
    let room = limit.saturating_sub(RESERVE);
    let (mut items, mut used, mut next, mut cuts) = (Vec::new(), 0, offset.min(of), Vec::new());
    while next < of {
        let whole = item(next);
        let mut text = whole.to_string().chars().count();
        let mut shown = whole;
        if text > room / 4 {
            let mut inside = Vec::new();
            shown = shortened(&shown, room / 4, &format!("{pointer}/{next}"), &mut inside);
            text = shown.to_string().chars().count();
            cuts.extend(inside);
        }
        if !items.is_empty() && used + text + 1 > room {
            break;
        }
        used += text + 1;
        items.push(shown);
        next += 1;
    }
    let mut page =
        json!({ "pointer": pointer, "offset": offset, "of": of, "next_offset": (next < of).then_some(next), "items": items });
    if !cuts.is_empty() {
        page["cut"] = listed(&cuts);
    }
    page.to_string()
}

fn fit(whole: &Value, limit: usize) -> String {
    let text = whole.to_string();
    if text.chars().count() <= limit {
        return text;
    }
    let mut cuts = Vec::new();
    let mut short = shortened(whole, limit.saturating_sub(RESERVE), "", &mut cuts);
    if let Value::Object(map) = &mut short {
        map.insert("cut".to_owned(), listed(&cuts));
    }
    short.to_string()
}

fn listed(cuts: &[Cut]) -> Value {
    let cut = |c: &Cut| json!({ "pointer": c.pointer, "shown": c.shown, "of": c.of, "offset": c.shown });
    let mut room = RESERVE - 200;
    let mut list = Vec::new();
    for c in cuts.iter().map(cut) {
        let long = c.to_string().chars().count() + 1;
        if long > room {
            break;
        }
        room -= long;
        list.push(c);
    }
    if cuts.len() > list.len() {
        list.push(json!({ "more_cuts": cuts.len() - list.len() }));
    }
    Value::Array(list)
}

/// The value with lists and texts cut until it takes at most `room` characters.
fn shortened(whole: &Value, room: usize, pointer: &str, cuts: &mut Vec<Cut>) -> Value {
    for (top, inside, text) in MOST {
        cuts.clear();
        let short = cut(whole, pointer, 0, top, inside, text, cuts);
        if short.to_string().chars().count() <= room {
            // The longest cuts come first, because the client most likely asks for them.
            cuts.sort_by_key(|c| (c.pointer.matches('/').count(), std::cmp::Reverse(c.of)));
            return short;
        }
    }
    for (levels, keeps_names) in LEVELS {
        cuts.clear();
        let short = thinned(whole, pointer, levels, keeps_names, cuts);
        if short.to_string().chars().count() <= room {
            cuts.sort_by_key(|c| (c.pointer.matches('/').count(), std::cmp::Reverse(c.of)));
            return short;
        }
    }
    // Nothing fits, so only the keys are listed.
    cuts.clear();
    let Value::Object(map) = whole else { return Value::Null };
    let mut keys = Map::new();
    for (key, value) in map.iter().take(room / 80) {
        let of = size(value);
        cuts.push(Cut { pointer: join(pointer, key), shown: 0, of });
        keys.insert(key.chars().take(40).collect(), Value::Null);
    }
    Value::Object(keys)
}

fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        Value::String(text) => text.chars().count(),
        _ => 1,
    }
}

fn join(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn cut(value: &Value, pointer: &str, depth: usize, top: usize, inside: usize, text: usize, cuts: &mut Vec<Cut>) -> Value {
    // The lists of an answer are one level below its top. Lists inside them are nested.
    let most = if depth <= 1 { top } else { inside };
    let mut note = |shown: usize, of: usize| cuts.push(Cut { pointer: pointer.to_owned(), shown, of });
    match value {
        Value::Array(items) => {
            if items.len() > most {
                note(most, items.len());
            }
            if most == 0 && !items.is_empty() {
                // An empty list would say that there is nothing.
                return Value::Null;
            }
            let kept = items.iter().take(most).enumerate();
            Value::Array(kept.map(|(i, v)| cut(v, &format!("{pointer}/{i}"), depth + 1, top, inside, text, cuts)).collect())
        }
        Value::Object(map) => {
            // An object whose keys are field names is a record and stays whole. One with very many keys is a table.
            let most = most.max(40);
            if map.len() > most {
                note(most, map.len());
            }
            let kept = map.iter().take(most);
            Value::Object(kept.map(|(k, v)| (k.clone(), cut(v, &join(pointer, k), depth + 1, top, inside, text, cuts))).collect())
        }
        Value::String(long) if long.chars().count() > text => {
            note(text, long.chars().count());
            Value::String(format!("{}…", long.chars().take(text).collect::<String>()))
        }
        other => other.clone(),
    }
}

/// The value without what lies deeper than `levels`, and with the first item of each list: verdicts and figures stay.
fn thinned(value: &Value, pointer: &str, levels: usize, keeps_names: bool, cuts: &mut Vec<Cut>) -> Value {
    const TEXT: usize = 120;
    let mut note = |shown: usize, of: usize| cuts.push(Cut { pointer: pointer.to_owned(), shown, of });
    match value {
        Value::Array(items) if items.is_empty() => value.clone(),
        Value::Object(map) if map.is_empty() => value.clone(),
        Value::Array(_) | Value::Object(_) if levels == 0 => {
            note(0, size(value));
            Value::Null
        }
        Value::Array(items) => {
            if items.len() > 1 {
                note(1, items.len());
            }
            let first = items.first().map(|item| thinned(item, &format!("{pointer}/0"), levels - 1, keeps_names, cuts));
            Value::Array(first.into_iter().collect())
        }
        Value::Object(map) => {
            let one = |(key, value): (&String, &Value)| {
                (key.clone(), thinned(value, &join(pointer, key), levels - 1, keeps_names, cuts))
            };
            let keeps = |(_, value): &(String, Value)| keeps_names || pointer.is_empty() || !value.is_null();
            Value::Object(map.iter().map(one).filter(keeps).collect())
        }
        Value::String(long) if long.chars().count() > TEXT => {
            note(TEXT, long.chars().count());
            Value::String(format!("{}…", long.chars().take(TEXT).collect::<String>()))
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn every_item_is_reached_by_what_the_answer_says_of_the_rest() {
        let rows: Vec<Value> = (0..5_000)
            .map(|i| json!({ "id": i, "stack": (0..12).map(|f| format!("file{f}.py:{i} \u{e9}")).collect::<Vec<_>>() }))
            .collect();
        let whole = json!({ "file": "x", "rows": rows, "why": "w".repeat(9_000) });
        for limit in [2_000, 20_000] {
            let first = bound(&whole, None, limit).unwrap();
            assert!(first.chars().count() <= limit, "{}", first.len());
            let first = read(&first);
            let cut = first["cut"].as_array().unwrap().iter().find(|c| c["pointer"] == "/rows").unwrap().clone();
            assert_eq!(
                (cut["of"].as_u64(), cut["shown"].as_u64()),
                (Some(5_000), Some(first["rows"].as_array().unwrap().len() as u64))
            );
            let mut offset = cut["offset"].as_u64().unwrap() as usize;
            let mut ids: Vec<u64> = first["rows"].as_array().unwrap().iter().map(|r| r["id"].as_u64().unwrap()).collect();
            loop {
                let page = bound(&whole, Some(("/rows", offset)), limit).unwrap();
                assert!(page.chars().count() <= limit, "{}", page.len());
                let page = read(&page);
                ids.extend(page["items"].as_array().unwrap().iter().map(|r| r["id"].as_u64().unwrap()));
                match page["next_offset"].as_u64() {
                    Some(next) => offset = next as usize,
                    None => break,
                }
            }
            assert_eq!(ids, (0..5_000).collect::<Vec<u64>>());
            let text = read(&bound(&whole, Some(("/why", 8_990)), limit).unwrap());
            assert_eq!((text["text"].as_str(), text["next_offset"].as_u64()), (Some("wwwwwwwwww"), None));
        }
    }

    #[test]
    fn a_verdict_stays_however_little_room_there_is() {
        let big: Vec<Value> = (0..30).map(|i| json!({ "stack": ["x".repeat(300), i], "bytes": i })).collect();
        let mut entry =
            json!({ "verdict": "fragmentation", "event": 7, "blockers": big, "holes": big, "way_out": { "blocks": big } });
        for i in 0..12 {
            entry[format!("list_{i}")] = json!(big);
        }
        let whole = json!({ "file": "x", "ooms": [entry], "whatif": big, "peaks": [] });
        let short = read(&bound(&whole, None, 2_000).unwrap());
        assert_eq!(
            (&short["ooms"][0]["verdict"], &short["ooms"][0]["blockers"]),
            (&json!("fragmentation"), &Value::Null),
            "{short}"
        );
        assert!(short["cut"].as_array().is_some_and(|cut| !cut.is_empty()));
    }

    #[test]
    fn whatever_the_shape_the_limit_holds() {
        let deep = (0..60).fold(json!("x".repeat(5_000)), |inner, _| json!([inner, "y".repeat(500)]));
        let wide: Map<String, Value> = (0..4_000).map(|i| (format!("key/{i}~"), json!("\u{1}".repeat(300)))).collect();
        for whole in
            [json!({ "deep": deep }), Value::Object(wide.clone()), json!({ "wide": wide }), json!([[[["z".repeat(90_000)]]]])]
        {
            for limit in [2_000, 20_000] {
                let text = bound(&whole, None, limit).unwrap();
                assert!(text.chars().count() <= limit, "{}", text.len());
                read(&text);
            }
        }
        assert!(bound(&json!({}), Some(("/none", 0)), 2_000).unwrap_err().contains("/none"));
        let small = json!({ "a": [1, 2] });
        assert_eq!(read(&bound(&small, None, 2_000).unwrap()), small);
    }
}
