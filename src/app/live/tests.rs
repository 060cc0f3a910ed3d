//! A watch's thread and file go with it.

use super::*;

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(10), "waited for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
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
            wait("the end", || {
                feed.updates();
                feed.status.is_over
            });
            // What was seen can still be kept.
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
    wait("the end", || {
        feed.updates();
        feed.status.is_over
    });
    drop(feed);
    end.recv_timeout(Duration::from_secs(10)).expect("the thread ends");
}
