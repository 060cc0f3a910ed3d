//! Settings that a text shows: flags of a command line, variables of the environment, arguments in code.

use super::prefix::stripped;
use super::text::looks_like;

/// Settings kept of one text.
const MOST: usize = 64;
/// In a log of thousands of failures the first ones are enough.
pub(super) const MOST_MESSAGES: usize = 64;
/// Before a setting these words recommend it: it is not set.
const RECOMMENDED: [&str; 8] = ["setting", "use", "try", "using", "set", "without", "add", "consider"];

/// The settings of a text in small letters, without leading dashes and quotes: `enforce_eager`, `max_num_seqs=8`.
pub(super) fn settings(text: &str) -> Vec<String> {
    let is_end = |c: char| c.is_whitespace() || "`,;()[]{}|<>".contains(c);
    let text = text.lines().map(|line| stripped(line).rest.replace(" = ", "=") + "\n").collect::<String>();
    let words = text.split(is_end);
    let mut words = words.map(|word| word.trim_matches(['"', '\''])).filter(|word| !word.is_empty()).peekable();
    let (mut out, mut before) = (Vec::new(), "");
    while let Some(word) = words.next().filter(|_| out.len() < MOST) {
        let is_recommended = RECOMMENDED.iter().any(|known| before.eq_ignore_ascii_case(known));
        before = word;
        let flag = word.strip_prefix("--").filter(|flag| flag.len() > 2);
        let name = flag.or(word.split_once('=').filter(|(name, value)| name.len() > 2 && !value.is_empty()).map(|_| word));
        let Some(name) = name.filter(|name| !is_recommended && name.starts_with(|c: char| c.is_ascii_alphabetic())) else {
            continue;
        };
        let value = words.peek().filter(|next| flag.is_some() && !name.contains('=') && !next.starts_with('-'));
        out.push(normal(&value.map_or(name.to_owned(), |value| format!("{name}={value}"))));
    }
    out
}

/// As [`settings`] keeps it.
fn normal(setting: &str) -> String {
    setting.to_ascii_lowercase().replace('-', "_").replace(['"', '\'', '\\'], "")
}

/// True if a text in small letters without white space turns expandable segments on, or says that they are; the message itself only
/// recommends them.
pub(super) fn expands(low: &str) -> bool {
    low.contains("expandable")
        && looks_like!("expandable[_-]?seg[a-z]?ments?(?:is|are|was|were)?(?:enabled|turnedon|settotrue)", low)
        || low.match_indices("expandable_segments:true").any(|(at, _)| {
            let variable = low[..at].rfind("pytorch_").filter(|from| at - from < 60);
            variable.is_some_and(|from| !RECOMMENDED.iter().any(|word| low[..from].ends_with(word)))
        })
}

impl super::OomMessage {
    /// True if the text shows this setting: `--flag`, `--flag 2`, `NAME=value`.
    pub fn is_given(&self, setting: &str) -> bool {
        let wanted = normal(setting.trim_start_matches('-').replacen(' ', "=", 1).as_str());
        let is_flag = setting.starts_with("--") && !wanted.contains('=');
        self.given.iter().any(|given| *given == wanted || is_flag && given.split('=').next() == Some(wanted.as_str()))
    }

    /// True if the text shows a setting whose name begins so.
    pub fn gives(&self, name: &str) -> bool {
        self.given.iter().any(|given| given.starts_with(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_advice_is_not() {
        let given = settings(
            "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n$ vllm serve x --enforce-eager --max-num-seqs 8 --dtype=half",
        );
        assert_eq!(given, ["pytorch_cuda_alloc_conf=expandable_segments:true", "enforce_eager", "max_num_seqs=8", "dtype=half"]);
        assert_eq!(settings("  optim = \"adamw_8bit\","), ["optim=adamw_8bit"]);
        for text in [
            "large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid",
            "use '--enforce-eager' in the CLI",
            "a == b",
            "try setting\n[rank3]: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ] {
            assert_eq!(settings(text), Vec::<String>::new(), "{text}");
        }
        for (text, on) in [
            ("exportpytorch_cuda_alloc_conf=max_split_size_mb:64,expandable_segments:true", true),
            ("os.environ[\"pytorch_alloc_conf\"]=\"expandable_segments:true\"", true),
            ("itstillhappenswithexpandablesegmentsenabled", true),
            ("withexpandablesegmentsnotenabled", false),
            ("islargetrysettingpytorch_cuda_alloc_conf=expandable_segments:truetoavoid", false),
        ] {
            assert_eq!(expands(text), on, "{text}");
        }
    }
}
