//! Desktop notifications, for events while the window is behind others.

/// Shows a notification from a thread. Without a notification service nothing happens; the window shows the sentence too.
pub(in crate::app) fn desktop(title: &str, sentence: &str) {
    let (title, sentence) = (title.to_owned(), sentence.to_owned());
    let work = move || {
        if let Err(error) = show(&title, &sentence) {
            tracing::debug!("no service shows desktop notifications: {error}");
        }
    };
    if let Err(error) = std::thread::Builder::new().name("notify".to_owned()).spawn(work) {
        tracing::debug!("no thread for a notification: {error}");
    }
}

/// Calls `Notify` of the [Desktop Notifications Specification](https://specifications.freedesktop.org/notification/latest/).
#[cfg(target_os = "linux")]
fn show(title: &str, sentence: &str) -> Result<(), zbus::Error> {
    use std::collections::HashMap;

    const SERVICE: &str = "org.freedesktop.Notifications";
    const CRITICAL: u8 = 2;
    let hints = HashMap::from([("urgency", zbus::zvariant::Value::from(CRITICAL))]);
    // A duration of -1 lets the desktop decide.
    let (replaces, icon, buttons, duration_ms) = (0u32, "", Vec::<&str>::new(), -1i32);
    let body = ("vramscope", replaces, icon, title, sentence, buttons, hints, duration_ms);
    let bus = zbus::blocking::Connection::session()?;
    bus.call_method(Some(SERVICE), "/org/freedesktop/Notifications", Some(SERVICE), "Notify", &body).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn show(_title: &str, _sentence: &str) -> Result<(), &'static str> {
    Err("vramscope shows them on Linux only")
}
