//! Desktop notifications, for events while the window is behind others.

use std::process::{Command, Stdio};

/// Shows a notification from a thread. Without a notification service nothing happens; the window shows the sentence too.
///
/// Tries two common tools, since either may be missing: `notify-send` of libnotify, then `gdbus` of GLib.
pub(in crate::app) fn desktop(title: &str, sentence: &str) {
    let (title, sentence) = (title.to_owned(), sentence.to_owned());
    let work = move || {
        let shown = ways(&title, &sentence).into_iter().any(|mut way| {
            way.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
        });
        if !shown {
            tracing::debug!("no service shows desktop notifications");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("notify".to_owned()).spawn(work) {
        tracing::debug!("no thread for a notification: {error}");
    }
}

fn ways(title: &str, sentence: &str) -> [Command; 2] {
    let mut send = Command::new("notify-send");
    // "--" keeps a sentence that begins with a dash from being read as an option.
    send.args(["--app-name=vramscope", "--urgency=critical", "--", title, sentence]);
    let mut bus = Command::new("gdbus");
    bus.args(["call", "--session", "--timeout=5", "--dest=org.freedesktop.Notifications"]);
    bus.args(["--object-path=/org/freedesktop/Notifications", "--method=org.freedesktop.Notifications.Notify"]);
    // Application, notification to replace, icon, title, text, buttons, hints, duration in ms (-1: the desktop's default).
    let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
    bus.args([
        &quoted("vramscope"),
        "uint32 0",
        "''",
        &quoted(title),
        &quoted(sentence),
        "@as []",
        "{'urgency': <byte 2>}",
        "int32 -1",
    ]);
    [send, bus]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_with_quotes_stays_one_argument() {
        let [send, bus] = ways("GPU memory", "Only 1 GiB \"free\" $(rm) 'x'.");
        assert_eq!(send.get_args().last().and_then(|a| a.to_str()), Some("Only 1 GiB \"free\" $(rm) 'x'."));
        let args: Vec<_> = bus.get_args().filter_map(|a| a.to_str()).collect();
        assert!(args.contains(&"\"Only 1 GiB \\\"free\\\" $(rm) 'x'.\""), "{args:?}");
    }
}
