//! The page that [`html`](super::html) writes. It separates markup from text, and its policy allows only its own script.

use serde_json::Value;

use super::Hidden;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// SHA-256 of the style and the script in base64. A browser applies only these two. A test compares them with the files.
const STYLE_HASH: &str = "6JJORcNIM00V8Vbt2N0k/nxW//5i6j4AH96P+PGo6aQ=";
const SCRIPT_HASH: &str = "11a5+6IlzzhTPZdvlUVybOXv1QOUOb8DrnYats+8T4w=";

/// A page being written. Only strings in this program's source are markup; everything else is escaped text.
pub(super) struct Page<'a> {
    out: String,
    pub(super) hidden: &'a Hidden,
    /// The data of the pictures that the script draws.
    pictures: Vec<Value>,
}

impl<'a> Page<'a> {
    pub(super) fn new(hidden: &'a Hidden) -> Self {
        Page { out: String::new(), hidden, pictures: Vec::new() }
    }

    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.out += markup;
        self
    }

    /// Adds a text with all markup escaped.
    pub(super) fn text(&mut self, text: impl AsRef<str>) -> &mut Self {
        for c in self.hidden.say(text.as_ref()).chars() {
            match c {
                '&' => self.out += "&amp;",
                '<' => self.out += "&lt;",
                '>' => self.out += "&gt;",
                '"' => self.out += "&quot;",
                '\'' => self.out += "&#39;",
                c => self.out.push(c),
            }
        }
        self
    }

    /// Adds a share as a CSS width.
    pub(super) fn percent(&mut self, part: u64, whole: u64) -> &mut Self {
        self.out += &format!("{:.2}%", part as f64 / whole.max(1) as f64 * 100.0);
        self
    }

    pub(super) fn number(&mut self, n: usize) -> &mut Self {
        self.out += &n.to_string();
        self
    }

    pub(super) fn cell(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.raw("<td>").text(text).raw("</td>")
    }

    pub(super) fn figure(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.raw("<td class=n>").text(text).raw("</td>")
    }

    pub(super) fn paragraph(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.raw("<p>").text(text).raw("</p>\n")
    }

    pub(super) fn title(&mut self, title: &'static str) -> &mut Self {
        self.raw("<h3>").raw(title).raw("</h3>\n")
    }

    /// A title with a text in small letters behind it.
    pub(super) fn titled(&mut self, title: &'static str, small: impl AsRef<str>) -> &mut Self {
        self.raw("<h3>").raw(title).raw("<small>").text(small).raw("</small></h3>\n")
    }

    /// A list of sentences, some with a line of code.
    pub(super) fn list<'t>(&mut self, items: impl Iterator<Item = (&'t str, Option<&'t str>)>) -> &mut Self {
        self.raw("<ul>\n");
        for (said, line) in items {
            self.raw("<li>").text(said);
            if let Some(line) = line {
                self.raw("<pre>").text(line).raw("</pre>");
            }
            self.raw("</li>\n");
        }
        self.raw("</ul>\n")
    }

    /// Figures with their names; those that failed are red.
    pub(super) fn facts(&mut self, facts: impl Iterator<Item = (String, String, bool)>) -> &mut Self {
        self.raw("<dl class=facts>");
        for (label, value, is_red) in facts {
            self.raw(if is_red { "<div class=red><dt>" } else { "<div><dt>" });
            self.text(label).raw("</dt><dd>").text(value).raw("</dd></div>");
        }
        self.raw("</dl>\n")
    }

    pub(super) fn note(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.raw("<p class=note>").text(text).raw("</p>\n")
    }

    pub(super) fn empty(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.raw("<p class=empty>").text(text).raw("</p>\n")
    }

    pub(super) fn code(&mut self, text: impl AsRef<str>) -> &mut Self {
        self.raw("<pre>").text(text).raw("</pre>\n")
    }

    pub(super) fn bar(&mut self, class: &'static str, part: u64, whole: u64) -> &mut Self {
        self.raw("<td class=bar><svg class=bar><rect height=\"100%\" class=\"").raw(class).raw("\" width=\"");
        self.percent(part, whole).raw("\"/></svg></td>")
    }

    pub(super) fn picture(&mut self, picture: Value, hint: &'static str, label: &'static str) -> &mut Self {
        let at = self.pictures.len();
        self.pictures.push(picture);
        self.raw("<figure data-picture=\"").number(at).raw("\"><div class=tools><span>").raw(hint);
        self.raw("</span></div><canvas tabindex=0 role=img aria-label=\"").raw(label).raw("\"></canvas></figure>\n")
    }

    pub(super) fn finish(self, title: &str) -> String {
        let mut head = Page::new(self.hidden);
        head.raw("<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n");
        head.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-");
        head.raw(STYLE_HASH).raw("'; script-src 'sha256-").raw(SCRIPT_HASH);
        head.raw("'; base-uri 'none'; form-action 'none'\">\n<meta name=referrer content=no-referrer>\n");
        head.raw("<meta name=viewport content=\"width=device-width, initial-scale=1\">\n<title>").text(title);
        head.raw("</title>\n<style>").raw(STYLE).raw("</style>\n</head>\n<body>\n");
        let mut page = head.out + &self.out;
        if !self.pictures.is_empty() {
            let said = said(Value::Array(self.pictures), self.hidden);
            page += "<noscript><main><p class=note>The pictures need the script in this file; the tables do not.</p></main></noscript>\n";
            page += &format!("<script type=\"application/json\" id=data>{}</script>\n", embedded(&said));
            page += &format!("<script>{SCRIPT}</script>\n");
        }
        page + "</body>\n</html>\n"
    }
}

/// Filters every text in a JSON value.
fn said(value: Value, hidden: &Hidden) -> Value {
    match value {
        Value::String(text) => Value::String(hidden.say(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(|v| said(v, hidden)).collect()),
        Value::Object(map) => Value::Object(map.into_iter().map(|(k, v)| (k, said(v, hidden))).collect()),
        other => other,
    }
}

/// JSON that cannot end its HTML element, whatever its texts contain.
fn embedded(value: &Value) -> String {
    let text = value.to_string();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => out += &format!("\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use serde_json::json;
    use sha2::{Digest as _, Sha256};

    #[test]
    fn the_policy_names_the_style_and_the_script_that_are_written() {
        let hash = |text: &str| base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text));
        assert_eq!((STYLE_HASH, SCRIPT_HASH), (hash(STYLE).as_str(), hash(SCRIPT).as_str()));
        assert!(!SCRIPT.to_lowercase().contains("</script") && !STYLE.contains("</"), "neither ends its own element");
    }

    #[test]
    fn no_text_is_markup() {
        let hidden = Hidden::nothing();
        let mut page = Page::new(&hidden);
        page.text("<img src=x onerror=alert(1)> \"' & \u{202e}\u{1b}[2J");
        assert_eq!(page.out, "&lt;img src=x onerror=alert(1)&gt; &quot;&#39; &amp; \\u202e\\u001b[2J");
        let data = json!(["</script><script>alert(1)</script>", "<!--", "\u{2028}]]>"]);
        let text = embedded(&data);
        assert!(!text.contains(['<', '>', '&', '\u{2028}']), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), data);
    }
}
