//! Graphics cards by name: their memory, and how much of it a program can use.

use crate::units::{Bytes, GIBIBYTE, MEBIBYTE, nearest};

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

/// Words in the names of many cards.
const OF_EVERY_CARD: [&str; 15] = [
    "nvidia", "geforce", "tesla", "quadro", "sxm2", "sxm3", "sxm4", "sxm5", "sxm", "hbm2e", "hbm3e", "hbm2", "hbm3", "gddr6x",
    "gddr6",
];

/// Words after a card's name that change nothing about its memory. GH200's size there is that of the host.
const AFTER: [&str; 8] = ["pcie", "480gb", "generation", "blackwell", "server", "workstation", "edition", "gpu"];

fn plain(text: &str) -> String {
    text.to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect()
}

/// The gigabytes in what follows a card's name; `Err` if other words stand there.
fn size_in(rest: &str) -> Result<Option<u64>, ()> {
    let (mut rest, mut size) = (rest, None);
    while !rest.is_empty() {
        if let Some(other) = AFTER.iter().find_map(|word| rest.strip_prefix(word)) {
            rest = other;
            continue;
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number = rest[..digits].parse().map_err(|_| ())?;
        if size.replace(number).is_some() {
            return Err(());
        }
        rest = &rest[digits..];
        rest = ["gib", "gb", "g"].iter().find_map(|unit| rest.strip_prefix(unit)).unwrap_or(rest);
    }
    Ok(size)
}

impl Card {
    /// Its name without a size.
    fn base(&self) -> String {
        let sized = self.name.rsplit_once(' ').filter(|(_, size)| size.ends_with("GB"));
        plain(sized.map_or(self.name, |(base, _)| base))
    }

    /// True if a card with so many gigabytes in its name can be this one. The driver shows up to a tenth less.
    fn is_sold_as(&self, gigabytes: u64) -> bool {
        let sold = gigabytes.saturating_mul(GIBIBYTE);
        self.bytes <= sold.saturating_add(sold / 20) && self.bytes >= sold - sold / 10
    }

    /// The most that PyTorch can reserve on it if no other process uses it: everything except the context.
    pub fn usable(&self) -> u64 {
        self.bytes.saturating_sub(CONTEXT)
    }

    /// Finds a card by name: `RTX 4090`, `rtx4090`, `NVIDIA GeForce RTX 4090`, `A100-80`. A name that says more than the card's
    /// own, such as another size, `Ti`, `Laptop` or a part of a card (MIG), is of another card.
    ///
    /// # Errors
    /// A sentence with similar names.
    pub fn find(name: &str) -> Result<Card, String> {
        let mut asked = plain(name);
        for word in OF_EVERY_CARD {
            asked = asked.replace(word, "");
        }
        let by_base = |asked: &str| {
            let of_base = CARDS.iter().filter(|card| !asked.is_empty() && asked.starts_with(&card.base()));
            let longest = of_base.clone().map(|card| card.base().len()).max()?;
            Some(of_base.filter(|card| card.base().len() == longest).collect::<Vec<_>>())
        };
        let found = [asked.clone(), format!("rtx{asked}")].into_iter().find_map(|asked| Some((by_base(&asked)?, asked)));
        if let Some((cards, asked)) = found
            && let Some(first) = cards.first()
        {
            let size = size_in(asked.get(first.base().len()..).unwrap_or_default());
            let fits = |card: &&&Card| match size {
                Ok(None) => card.base() == plain(card.name),
                Ok(Some(size)) => card.is_sold_as(size),
                Err(()) => false,
            };
            return cards.iter().find(fits).or_else(|| cards.first().filter(|_| size == Ok(None))).map(|card| **card).ok_or_else(|| {
                let known: Vec<String> = cards.iter().map(|card| Bytes(card.bytes).to_string()).collect();
                format!(
                    "\"{name}\" is not the {} that is known here ({}); write the memory of yours with --cap, as in --cap 16GiB",
                    first.name,
                    known.join(" or ")
                )
            });
        }
        let near: Vec<&Card> = CARDS.iter().filter(|c| !asked.is_empty() && plain(c.name).contains(&asked)).collect();
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
            ("A6000", "RTX A6000"),
            ("A100-80", "A100 80GB"),
            ("A100 80GB PCIe", "A100 80GB"),
            ("A100-SXM4-40GB", "A100"),
            ("Tesla V100-SXM2-32GB", "V100 32GB"),
            ("V100-16GB", "V100"),
            ("H100 PCIe", "H100 PCIe"),
            ("H100 SXM", "H100"),
            ("NVIDIA GH200 480GB", "GH200"),
            ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000"),
            ("L4 24GB", "L4"),
            ("T4 16GB", "T4"),
            ("B200 192GB", "B200"),
            ("RTX 3060 12GB", "RTX 3060"),
            ("RTX 2080 Ti", "RTX 2080 Ti"),
        ] {
            assert_eq!(Card::find(text).map(|c| c.name), Ok(name), "{text}");
        }
        for text in [
            "RTX 3060 8GB",
            "RTX 3060 Ti",
            "RTX 2080",
            "RTX 4090 Laptop GPU",
            "RTX 3080 12GB",
            "3080 Ti",
            "RTX 4070 Ti SUPER",
            "A100-SXM4-80GB MIG 1g.10gb",
            "H100 1g.10gb",
            "A100 20GB",
            "A10-24Q",
            "Tesla P100-PCIE-12GB",
            "GH200 144GB",
            "T400",
            "A4000",
            "RTX",
        ] {
            assert!(Card::find(text).is_err(), "{text}: {:?}", Card::find(text));
        }
        let said = Card::find("RTX 4090 Laptop GPU").unwrap_err().replace('\u{a0}', " ");
        assert!(
            said.contains("is not the RTX 4090 that is known here (23.99 GiB); write the memory of yours with --cap"),
            "{said}"
        );
        assert!(Card::find("Voodoo 2").is_err());
        assert_eq!(Card::find("rtx 4900"), Err("no card is called \"rtx 4900\"; did you mean RTX 4090?".to_owned()));
        assert!(Card::find("").is_err());
    }
}
