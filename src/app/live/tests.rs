//! A watch leaves no thread and no file behind.

use super::*;
use vramscope_core::formats::session::{MarkPoint, Record, SessionWriter};

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(10), "waited for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the watch ends. Returns the updates it sent.
fn until_over(feed: &mut LiveFeed) -> Vec<Update> {
    let mut told = Vec::new();
    wait("the end", || {
        told.extend(feed.updates());
        feed.status.is_over
    });
    told
}

#[test]
fn a_watch_that_was_stopped_or_closed_ends_its_thread_and_leaves_no_file() {
    for is_stopped in [true, false] {
        let (ended, end) = channel();
        let ctx = egui::Context::default();
        let mut feed = LiveFeed::start(&ctx, move |inside| {
            watch(inside);
            let _ = ended.send(());
        });
        wait("the file", || feed.kept.get().is_some());
        let path = feed.kept.get().cloned().unwrap();
        assert!(path.exists());
        if is_stopped {
            feed.act(LiveAction::Stop);
            until_over(&mut feed);
            // A stopped watch can still be saved.
            let out = tempfile::tempdir().unwrap();
            feed.save_to(out.path().join("kept.vramscope"));
            wait("the copy", || out.path().join("kept.vramscope").exists());
        }
        drop(feed);
        assert!(!path.exists(), "the program may end in the next moment");
        end.recv_timeout(Duration::from_secs(10)).expect("the thread ends");
        assert!(!path.exists());
    }
}

#[test]
fn a_pipe_that_was_stopped_ends_its_thread() {
    let (ended, end) = channel();
    let ctx = egui::Context::default();
    let (_writer, reader) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut feed = LiveFeed::start(&ctx, move |inside| {
        follow(reader, inside);
        let _ = ended.send(());
    });
    feed.act(LiveAction::Stop);
    until_over(&mut feed);
    drop(feed);
    end.recv_timeout(Duration::from_secs(10)).expect("the thread ends");
}

#[test]
fn a_pipe_that_breaks_off_says_so_however_fast_it_came() {
    let mut bytes = Vec::new();
    let mut writer = SessionWriter::new(&mut bytes).unwrap();
    for t in 0..9 {
        let mark = MarkPoint { d: None, t, kind: MarkKind::User, text: "here".to_owned() };
        writer.write(&Record::Mark(mark)).unwrap();
    }
    drop(writer);
    bytes.truncate(bytes.len() - 7);
    let mut feed = LiveFeed::stream(&egui::Context::default(), std::io::Cursor::new(bytes));
    let told = until_over(&mut feed);
    assert!(told.iter().any(|u| matches!(u, Update::Notice(text) if text.contains("broke off"))));
}

#[test]
fn a_watch_that_panics_ends_with_a_sentence() {
    let mut feed = LiveFeed::start(&egui::Context::default(), |_| panic!("no such thing"));
    let told = until_over(&mut feed);
    assert!(told.iter().any(|u| matches!(u, Update::Notice(text) if text.contains("no such thing"))));
}
