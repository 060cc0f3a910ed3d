//! The memory to fit in: a card, or a number of bytes.

use vramscope_core::plan::cards::{CARDS, Card};
use vramscope_core::units::{Bytes, GIBIBYTE, NBSP};

/// Cards that are listed; the others are in a menu.
pub(super) const LISTED: [&str; 5] = ["RTX 4090", "A100", "L40S", "H100", "H200"];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Room {
    /// This many bytes for PyTorch.
    Cap(u64),
    Card(Card),
}

impl Room {
    /// What PyTorch may reserve when other programs use `held` bytes of a card.
    pub fn limit(self, held: u64) -> u64 {
        match self {
            Room::Cap(bytes) => bytes,
            Room::Card(card) => card.usable().saturating_sub(held).max(1 << 20),
        }
    }
}

/// The card of this name, exactly as it is listed.
pub(super) fn card(name: &str) -> Option<Card> {
    CARDS.into_iter().find(|card| card.name == name)
}

/// The default memory when the recording does not name its card: the smallest listed card that holds its peak.
pub(super) fn room_for(peak: u64) -> Room {
    let mut listed = LISTED.iter().filter_map(|name| card(name));
    let holds = listed.find(|card| card.usable() >= peak);
    holds.or(LISTED.last().and_then(|name| card(name))).map_or(Room::Cap(peak), Room::Card)
}

/// `in 4 GiB`, `on the H100`.
pub(super) fn room_words(room: Room) -> String {
    match room {
        Room::Cap(bytes) => format!("in {}", Bytes(bytes).limit()),
        Room::Card(card) => format!("on the {}", card.name.replace(' ', &NBSP.to_string())),
    }
}

/// The memory of a card as its driver shows it. Vendors round: a card of "24 GB" has 23.99 GiB, and one of "141 GB" has 140.4
/// GiB.
pub(super) fn card_size(card: Card) -> String {
    let gib = card.bytes as f64 / GIBIBYTE as f64;
    format!("{gib:.1}{NBSP}GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_have_the_memory_that_their_driver_shows() {
        let size = |name| card(name).map(card_size);
        assert_eq!(size("RTX 4090"), Some(format!("24.0{NBSP}GiB")));
        assert_eq!(size("H100"), Some(format!("79.6{NBSP}GiB")));
        assert_eq!(size("H200"), Some(format!("140.4{NBSP}GiB")));
        assert!(LISTED.iter().all(|name| card(name).is_some()));
    }

    #[test]
    fn without_a_word_of_its_card_a_recording_is_held_against_the_least_that_holds_it() {
        assert!(matches!(room_for(20 << 30), Room::Card(card) if card.name == "RTX 4090"));
        assert!(matches!(room_for(60 << 30), Room::Card(card) if card.name == "H100"));
        assert!(matches!(room_for(900 << 30), Room::Card(card) if card.name == "H200"));
        assert_eq!(Room::Cap(5 << 30).limit(1 << 30), 5 << 30, "nothing comes off a cap");
    }
}
