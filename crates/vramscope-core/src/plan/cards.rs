//! Graphics cards by name: their memory, and how much of it a program can use.

use crate::units::{GIBIBYTE, MEBIBYTE, nearest};

/// A graphics card and its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Card {
    /// Its name, without the vendor.
    pub name: &'static str,
    /// Memory that the driver reports, in bytes.
    pub bytes: u64,
}

/// Memory of a CUDA context besides PyTorch's reserved memory: driver, kernels, cuBLAS and cuDNN. Measured: 439 to 615 MiB
/// (docs/PROBE.md, docs/PERFORMANCE.md); this figure is larger, to be safe.
pub const CONTEXT: u64 = 700 * MEBIBYTE;

const fn gib(n: u64) -> u64 {
    n * GIBIBYTE
}

/// Common cards, with the total memory that `nvidia-smi` shows.
pub const CARDS: [Card; 36] = [
    Card { name: "B300", bytes: 275_040 * MEBIBYTE },
    Card { name: "B200", bytes: 183_359 * MEBIBYTE },
    Card { name: "H200", bytes: 143_771 * MEBIBYTE },
    Card { name: "H200 NVL", bytes: 143_771 * MEBIBYTE },
    Card { name: "H100 NVL", bytes: 95_830 * MEBIBYTE },
    Card { name: "GH200", bytes: 97_871 * MEBIBYTE },
    Card { name: "RTX PRO 6000", bytes: 97_887 * MEBIBYTE },
    Card { name: "H100", bytes: 81_559 * MEBIBYTE },
    Card { name: "H100 PCIe", bytes: 81_559 * MEBIBYTE },
    Card { name: "A100 80GB", bytes: 81_920 * MEBIBYTE },
    Card { name: "H20", bytes: 97_871 * MEBIBYTE },
    Card { name: "A100", bytes: 40_960 * MEBIBYTE },
    Card { name: "A100 40GB", bytes: 40_960 * MEBIBYTE },
    Card { name: "L40S", bytes: 46_068 * MEBIBYTE },
    Card { name: "L40", bytes: 46_068 * MEBIBYTE },
    Card { name: "A40", bytes: 46_068 * MEBIBYTE },
    Card { name: "RTX 6000 Ada", bytes: 49_140 * MEBIBYTE },
    Card { name: "RTX A6000", bytes: 49_140 * MEBIBYTE },
    Card { name: "RTX 5090", bytes: 32_607 * MEBIBYTE },
    Card { name: "V100 32GB", bytes: 32_768 * MEBIBYTE },
    Card { name: "V100", bytes: 16_384 * MEBIBYTE },
    Card { name: "RTX 4090", bytes: 24_564 * MEBIBYTE },
    Card { name: "RTX 3090", bytes: 24_576 * MEBIBYTE },
    Card { name: "RTX A5000", bytes: 24_564 * MEBIBYTE },
    Card { name: "L4", bytes: 23_034 * MEBIBYTE },
    Card { name: "A10G", bytes: 23_028 * MEBIBYTE },
    Card { name: "A10", bytes: 23_028 * MEBIBYTE },
    Card { name: "A30", bytes: 24_576 * MEBIBYTE },
    Card { name: "RTX 4080", bytes: 16_376 * MEBIBYTE },
    Card { name: "RTX 5080", bytes: 16_303 * MEBIBYTE },
    Card { name: "T4", bytes: 15_360 * MEBIBYTE },
    Card { name: "P100", bytes: gib(16) },
    Card { name: "RTX 4070", bytes: 12_282 * MEBIBYTE },
    Card { name: "RTX 3060", bytes: 12_288 * MEBIBYTE },
    Card { name: "RTX 3080", bytes: 10_240 * MEBIBYTE },
    Card { name: "RTX 2080 Ti", bytes: 11_264 * MEBIBYTE },
];

impl Card {
    /// The most that PyTorch can reserve on it if no other process uses it: everything except the context.
    pub fn usable(&self) -> u64 {
        self.bytes.saturating_sub(CONTEXT)
    }

    /// Finds a card by name: `RTX 4090`, `rtx4090`, `NVIDIA GeForce RTX 4090`.
    ///
    /// # Errors
    /// A sentence with similar names.
    pub fn find(name: &str) -> Result<Card, String> {
        let plain = |text: &str| -> String { text.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect() };
        let mut asked = plain(name);
        for vendor in ["nvidia", "geforce", "tesla", "quadro", "sxm4", "sxm5", "sxm2", "hbm3e", "hbm3", "hbm2e"] {
            asked = asked.replace(vendor, "");
        }
        let exact = CARDS.iter().find(|c| plain(c.name) == asked || format!("{}gb", plain(c.name)) == asked);
        let long = || CARDS.iter().filter(|c| asked.starts_with(&plain(c.name))).max_by_key(|c| c.name.len());
        if let Some(card) = exact.or_else(|| long().filter(|_| !asked.is_empty())) {
            return Ok(*card);
        }
        let near: Vec<&Card> = CARDS.iter().filter(|c| !asked.is_empty() && plain(c.name).contains(&asked)).collect();
        if let [one] = near.as_slice() {
            return Ok(**one);
        }
        let names: Vec<String> = CARDS.iter().map(|c| plain(c.name)).collect();
        let meant = nearest(&asked, names.iter().map(String::as_str));
        let meant = CARDS.iter().zip(&names).find(|(_, name)| near.is_empty() && meant == Some(name.as_str()));
        if let Some((card, _)) = meant {
            return Err(format!("no card is called \"{name}\"; did you mean {}?", card.name));
        }
        let known = if near.is_empty() { CARDS.iter().collect() } else { near };
        let known: Vec<&str> = known.iter().map(|c| c.name).collect();
        Err(format!(
            "no card is called \"{name}\"; known are {}; or write its memory with --cap, as in --cap 24GiB",
            known.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_found_as_people_write_them() {
        for (text, name) in [
            ("RTX 4090", "RTX 4090"),
            ("rtx4090", "RTX 4090"),
            ("NVIDIA GeForce RTX 3090", "RTX 3090"),
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("A100-SXM4-80GB", "A100 80GB"),
            ("a100", "A100"),
            ("Tesla T4", "T4"),
            ("4090", "RTX 4090"),
        ] {
            assert_eq!(Card::find(text).map(|c| c.name), Ok(name), "{text}");
        }
        assert!(Card::find("Voodoo 2").is_err());
        assert_eq!(Card::find("rtx 4900"), Err("no card is called \"rtx 4900\"; did you mean RTX 4090?".to_owned()));
        assert!(Card::find("").is_err());
    }
}
