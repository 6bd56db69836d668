//! All tunables in one list: the engine's, which sources report, and each source's own.

use std::iter;
use std::sync::LazyLock;

use pghot_engine::{Kept, Kind, Settings, TUNABLES, Tunable, TunableError};
use pghot_hotness::Rule;

use crate::{Config, SOURCES, hint_fault, page_cache, pgtscan};

/// The sources that report. Its text and its range follow from [`SOURCES`].
static ENABLED_SOURCES: LazyLock<Tunable> = LazyLock::new(|| {
    let members = SOURCES.iter().map(|it| (it.name, u64::from(it.bit)));
    let members = &*members.collect::<Vec<_>>().leak();
    let bits = members.iter().map(|(name, bit)| format!("{name} {bit:#x}"));
    let bits = bits.collect::<Vec<_>>().join(", ");
    let doc = format!(
        "The hotness sources that report: their names with commas between, `default`, `none`, or \
         the sum of their bits: {bits}."
    );
    Tunable {
        name: "enabled_sources",
        unit: "",
        kind: Kind::Set {
            of: "source",
            members,
        },
        doc: doc.leak(),
        // pgtscan sees the shared and forked memory that hint faults do not, and stands in for them
        // while the kernel would promote in the fault. Neither sees page cache that nobody maps.
        default: |_| {
            let mapped = hint_fault::DESCRIPTOR.bit | pgtscan::DESCRIPTOR.bit;
            (mapped | page_cache::DESCRIPTOR.bit).into()
        },
        range: |_| (0, SOURCES.iter().map(|it| u64::from(it.bit)).sum()),
        kept: Kept::ByName,
    }
});

/// Every tunable.
pub fn all() -> impl Iterator<Item = &'static Tunable> + Clone {
    let engine = TUNABLES.iter().chain(iter::once(&*ENABLED_SOURCES));
    engine.chain(of_sources())
}

fn of_sources() -> impl Iterator<Item = &'static Tunable> + Clone {
    SOURCES.iter().flat_map(|source| source.tunables)
}

/// Looks a tunable up by its name.
pub fn find(name: &str) -> Result<&'static Tunable, TunableError> {
    Tunable::find(all(), name)
}

/// Sets a tunable from text; the settings are unchanged on error.
pub fn set(settings: &mut Settings, name: &str, text: &str) -> Result<(), TunableError> {
    settings.set(find(name)?, text)
}

/// The mask of the sources that shall report.
pub fn enabled_sources(settings: &Settings) -> u32 {
    settings.get(&ENABLED_SOURCES) as u32
}

/// What the settings ask of sources; `rule` is made from them.
pub fn config(settings: &Settings, rule: Rule) -> Config {
    Config::new(settings, rule, of_sources())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use pghot_hotness::Format;

    use super::*;

    #[test]
    fn every_tunable_has_its_own_name_and_a_possible_default() {
        let names: BTreeSet<_> = all().map(|tunable| tunable.name).collect();
        assert_eq!(names.len(), all().count());
        for mode in [Format::Default, Format::Precision] {
            let settings = Settings::new(mode);
            for t in all() {
                let value = settings.get(t);
                assert_eq!(value, (t.default)(mode), "{}", t.name);
                assert_eq!(t.parse(&t.show(value), mode), Ok(value), "{}", t.name);
                assert!(t.doc.ends_with('.') && !t.doc.contains("  "), "{}", t.name);
            }
        }
    }

    #[test]
    fn what_is_set_is_what_a_source_is_told() {
        for tunable in of_sources() {
            let mut settings = Settings::new(Format::Default);
            let (default, (min, max)) = (settings.clone(), (tunable.range)(Format::Default));
            let other = if settings.get(tunable) == max {
                min
            } else {
                max
            };
            let text = other.to_string();
            set(&mut settings, tunable.name, &text).unwrap();
            let rule = settings.rule().unwrap();
            assert_ne!(config(&settings, rule), config(&default, rule));
            assert_eq!(config(&settings, rule).get(tunable), other);
            let text = tunable.show_default(Format::Default);
            set(&mut settings, tunable.name, &text).unwrap();
            assert_eq!(settings, default);
        }
    }

    #[test]
    fn sources_have_a_bit_each_and_the_mask_takes_no_other() {
        let bits = SOURCES.iter().fold(0, |bits, source| {
            assert_eq!(source.bit.count_ones(), 1, "{}", source.name);
            assert_eq!(bits & source.bit, 0, "{}", source.name);
            bits | source.bit
        });
        let mut settings = Settings::new(Format::Default);
        set(&mut settings, "enabled_sources", &format!("{bits:#x}")).unwrap();
        assert_eq!(enabled_sources(&settings), bits);
        let beyond = format!("{:#x}", bits + 1);
        assert!(set(&mut settings, "enabled_sources", &beyond).is_err());
    }

    #[test]
    fn sources_go_by_their_names() {
        let mut settings = Settings::new(Format::Default);
        let tunable = find("enabled_sources").unwrap();
        let (two, faults) = ("page_cache, hint_fault", hint_fault::DESCRIPTOR.bit);
        for (text, shown) in [
            (two, "hint_fault,page_cache"),
            ("none", "none"),
            ("0", "none"),
            ("mglru", "mglru"),
            ("0x3", "hint_fault,hw_sample"),
            ("default", "hint_fault,pgtscan,page_cache"),
        ] {
            settings.set(tunable, text).unwrap();
            assert_eq!(settings.show(tunable), shown);
        }
        settings.set(tunable, "hint_fault,hint_fault").unwrap();
        assert_eq!(enabled_sources(&settings), faults);
        for (text, why) in [
            (
                "hint_faults",
                "there is no source `hint_faults`: did you mean `hint_fault`?",
            ),
            ("mglru,", "there is no source ``"),
            ("mglru,0x1", "there is no source `0x1`"),
            (
                "",
                "takes names with commas between, default, none or a mask, not ``",
            ),
            (",", "not `,`"),
        ] {
            let error = settings.set(tunable, text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(enabled_sources(&settings), faults, "nothing has changed");
    }
}
