//! Finds commands for questions such as `why oom` when no command has that name.

use crate::app::state::{Command, ViewKind};

/// Words that say nothing about what is looked for.
const SMALL: [&str; 28] = [
    "a", "an", "and", "are", "can", "did", "do", "does", "for", "from", "how", "i", "in", "is", "it", "me", "my", "of", "on",
    "show", "the", "this", "to", "too", "what", "where", "why", "with",
];

/// Additional search words of a command.
fn also(command: Command) -> &'static str {
    use Command as C;
    match command {
        C::Show(view) => of_view(view),
        C::Workspace(workspace) => workspace.view().map_or("", of_view),
        C::Open => "load file snapshot pickle",
        C::OpenRanks => "distributed ddp fsdp multi gpu",
        C::CompareFiles => "diff difference before after",
        C::SaveRecording => "export pickle",
        C::SaveReport => "export share html",
        C::SavePicture => "export share screenshot image",
        C::Explain => "error crash failed failure log out-of-memory cuda",
        C::WatchMachine => "monitor now nvidia-smi running process attach",
        C::Manual => "help documentation docs guide",
        C::HowToRecord => "capture snapshot dump start history",
        C::Probe => "test try example demo",
        C::ToggleTheme => "theme mode night colour color appearance",
        C::Colour(_) => "color",
        C::Help => "help keyboard keys mouse hotkeys",
        C::Settings => "preferences options font editor",
        C::OutOfMemory => "oom error crash failed failure",
        C::Peak => "maximum max highest top",
        C::ZoomFit => "reset zoom all fit",
        C::Clear => "reset deselect filter",
        C::SelectionBack => "back previous",
        C::ResetLayout => "default restore panes windows",
        C::QueryStack => "same similar filter",
        _ => "",
    }
}

fn of_view(view: ViewKind) -> &'static str {
    use ViewKind as V;
    match view {
        V::Memory => "too much memory usage used uses biggest largest most high full who why roles tensors",
        V::Findings => "too much memory usage reduce save less lower problem problems diagnose fix high why leak leaking advice",
        V::Timeline => "graph curve plot chart history time",
        V::SegmentMap => "fragmentation fragmented holes cache layout blocks",
        V::Heatmap => "fragmented holes cache address",
        V::Inspector => "details selected properties",
        V::Allocations => "tensors blocks biggest largest list search filter",
        V::Events => "history log malloc free list",
        V::Contents => "file information version warnings metadata",
        V::Autopsy => "why out-of-memory error crash crashed failed failure cuda",
        V::Flame => "stack callers who function profile",
        V::Compare => "diff difference before after",
        V::Leaks => "memory leak leaking grow growing growth increase increasing rising lost",
        V::Steps => "iteration iterations epoch batch growth",
        V::Accounting => "nvidia-smi total reserved cached driver context used gap missing",
        V::WhatIf => "configuration config conf alloc_conf expandable segments max_split_size garbage fragmentation try",
        V::Plan => "too much memory bigger larger gpu reduce save fit size predict estimate",
        V::Live => "monitor watch now nvidia-smi running",
    }
}

/// How well a command answers a question. Every relevant word must be in its name, its tooltip or its additional words. The score
/// is below that of any command whose name matches.
pub(super) fn asked(command: Command, title: &str, query: &str) -> Option<i32> {
    let [title, also, said] = [title, also(command), command.tooltip()].map(words);
    let known = |word: &String| {
        let is_in = |all: &[String]| all.iter().any(|known| is_same(known, word));
        [(20, &title), (20, &also), (5, &said)].into_iter().find(|(_, all)| is_in(all)).map(|(score, _)| score)
    };
    let (small, telling): (Vec<String>, Vec<String>) = words(query).into_iter().partition(|w| SMALL.contains(&w.as_str()));
    if !telling.iter().any(|w| w.len() >= 3) {
        return None;
    }
    let scores: Vec<i32> = telling.iter().map(known).collect::<Option<_>>()?;
    let more = small.iter().filter(|w| also.contains(w)).count() as i32;
    Some(40 + scores.iter().sum::<i32>() / scores.len().max(1) as i32 + more)
}

/// Compares two words by prefix, because the last word may be unfinished and endings may differ: `leaking` matches `leak`.
fn is_same(known: &str, word: &str) -> bool {
    known.starts_with(word) || (known.len() >= 4 && word.starts_with(known))
}

fn words(text: &str) -> Vec<String> {
    let parts = text.to_lowercase();
    parts.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::state::ColourBy;

    fn best(query: &str) -> Vec<Command> {
        let mut found: Vec<(i32, Command)> =
            Command::all().into_iter().filter_map(|c| Some((asked(c, &c.text(), query)?, c))).collect();
        found.sort_by_key(|f| std::cmp::Reverse(f.0));
        found.into_iter().map(|f| f.1).take(3).collect()
    }

    #[test]
    fn questions_find_the_view_that_answers_them() {
        for (query, wanted) in [
            ("why oom", Command::Show(ViewKind::Autopsy)),
            ("why did it crash", Command::Show(ViewKind::Autopsy)),
            ("leak", Command::Show(ViewKind::Leaks)),
            ("is it leaking", Command::Show(ViewKind::Leaks)),
            ("memory grows", Command::Show(ViewKind::Leaks)),
            ("too much memory", Command::Show(ViewKind::Memory)),
            ("reduce memory", Command::Show(ViewKind::Findings)),
            ("bigger batch", Command::Show(ViewKind::Plan)),
            ("expandable segments", Command::Show(ViewKind::WhatIf)),
            ("nvidia-smi", Command::Show(ViewKind::Accounting)),
            ("checkpointing", Command::Show(ViewKind::Plan)),
            ("screenshot", Command::SavePicture),
            ("theme", Command::ToggleTheme),
            ("help", Command::Help),
            ("color by role", Command::Colour(ColourBy::Role)),
            ("biggest tensors", Command::Show(ViewKind::Allocations)),
        ] {
            assert!(best(query).contains(&wanted), "{query}: {:?}", best(query));
        }
        for nothing in ["", "why", "is it", "xyzzy", "q"] {
            assert_eq!(best(nothing), [], "{nothing}");
        }
    }
}
