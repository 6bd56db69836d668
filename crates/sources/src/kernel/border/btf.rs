//! What crosses the border of an object in C, by its BTF, and how it differs from Rust's
//! description.

use std::collections::BTreeMap;

use libbpf_rs::ObjectBuilder;
use libbpf_rs::btf::types::{
    Array, DataSec, Enum, Func, FuncProto, Int, MemberAttr, Ptr, Struct, Var,
};
use libbpf_rs::btf::{Btf, BtfType, HasSize, ReferencesType, TypeId};
use pghot_hotness::Shape;

/// What Rust has for something of C.
#[derive(Debug, Clone, Copy)]
pub enum Side {
    /// A type.
    Is(&'static Shape),
    /// A type, and this many elements of the map.
    Elements(&'static Shape, usize),
    /// Nothing, and why.
    Nothing(&'static str),
}

/// Rust's sides, by what they stand for: `map answers`, `section .data.quick`, `argument of
/// resolve`, `result of scan`.
pub type Sides = BTreeMap<String, Side>;

/// A compiled object.
pub struct Object {
    btf: Btf<'static>,
    /// Programs that user space calls.
    callable: Vec<String>,
}

/// What crosses at one place, and how many times.
enum What<'a> {
    Type(BtfType<'a>, usize),
    Bytes(usize, usize),
}

fn name_of(name: Option<&std::ffi::OsStr>) -> String {
    name.map_or("", |name| name.to_str().unwrap()).to_owned()
}

/// Behind typedefs and qualifiers.
fn bare(it: BtfType<'_>) -> BtfType<'_> {
    it.skip_mods_and_typedefs()
}

impl Object {
    pub fn open(image: &'static [u8]) -> Object {
        let open = ObjectBuilder::default().open_memory(image).unwrap();
        let is_callable = |section: &str| section.trim_start_matches('?') == "syscall";
        let callable = open
            .progs()
            .filter(|p| is_callable(p.section().to_str().unwrap()));
        Object {
            btf: Btf::from_raw("border", image).unwrap().unwrap(),
            callable: callable.map(|p| name_of(Some(p.name()))).collect(),
        }
    }

    fn by_id(&self, id: TypeId) -> BtfType<'_> {
        self.btf.type_by_id(id).unwrap()
    }

    /// All that crosses.
    fn crossings(&self) -> BTreeMap<String, What<'_>> {
        let mut found = BTreeMap::new();
        for section in self.btf.type_by_kind::<DataSec<'_>>() {
            let section_name = name_of(section.name());
            for info in section.iter() {
                // Functions of the kernel.
                if section_name == ".ksyms" {
                    continue;
                }
                let variable = Var::try_from(self.by_id(info.ty)).unwrap();
                let (name, of) = (name_of(variable.name()), bare(variable.referenced_type()));
                match section_name.as_str() {
                    "license" => {}
                    ".maps" => {
                        let map = self.map(&name, Struct::try_from(of).unwrap());
                        found.insert(format!("map {name}"), map);
                    }
                    _ => {
                        let what = What::Type(of, 1);
                        let earlier = found.insert(format!("section {section_name}"), what);
                        assert!(earlier.is_none(), "{section_name} has more than {name}");
                    }
                }
            }
        }
        for name in &self.callable {
            let function: Func<'_> = self.btf.type_by_name(name).unwrap();
            let function = FuncProto::try_from(function.referenced_type()).unwrap();
            let result = bare(function.referenced_type());
            if Enum::try_from(result).is_ok() {
                found.insert(format!("result of {name}"), What::Type(result, 1));
            }
            for parameter in function.iter() {
                let pointer = Ptr::try_from(bare(self.by_id(parameter.ty))).unwrap();
                if let Ok(argument) = Struct::try_from(bare(pointer.referenced_type())) {
                    found.insert(format!("argument of {name}"), What::Type(*argument, 1));
                }
            }
        }
        found
    }

    /// A map's value and its number of elements; keys are numbers of elements all.
    fn map<'a>(&'a self, name: &str, map: Struct<'a>) -> What<'a> {
        let member = |wanted: &str| {
            let members = (0..map.len()).filter_map(|i| map.get(i));
            let mut members = members.filter(|m| name_of(m.name) == wanted);
            members.next().map(|m| {
                Ptr::try_from(bare(self.by_id(m.ty)))
                    .unwrap()
                    .referenced_type()
            })
        };
        // `__uint(name, n)` is a pointer to an array of n.
        let number = |wanted| Some(Array::try_from(bare(member(wanted)?)).unwrap().capacity());
        let key = Int::try_from(bare(member("key").unwrap())).unwrap();
        assert_eq!(key.size(), 4, "the key of map {name}");
        let entries = number("max_entries").unwrap_or(1);
        match (member("value"), number("value_size")) {
            (Some(value), _) => What::Type(bare(value), entries),
            (None, Some(bytes)) => What::Bytes(bytes, entries),
            (None, None) => panic!("map {name} has neither a value nor a size"),
        }
    }

    /// How C differs from Rust, one sentence each; empty if it does not. `enums` are those that
    /// Rust keeps as numbers in structures.
    pub fn drifts(&self, sides: &Sides, enums: &[&Shape]) -> Vec<String> {
        let mut drifts = Vec::new();
        let crossings = self.crossings();
        for (place, what) in &crossings {
            let (shape, wanted) = match sides.get(place) {
                None => {
                    drifts.push(format!("{place} crosses, and Rust has nothing for it"));
                    continue;
                }
                Some(Side::Nothing(why)) => {
                    assert!(!why.is_empty(), "{place}");
                    continue;
                }
                Some(Side::Is(shape)) => (shape, None),
                Some(Side::Elements(shape, n)) => (shape, Some(*n)),
            };
            let entries = match what {
                What::Type(c, entries) => {
                    self.compare(*c, shape, place, enums, &mut drifts);
                    *entries
                }
                What::Bytes(bytes, entries) => {
                    let rust = size_of_shape(shape);
                    if rust != *bytes {
                        drifts.push(format!("{place} has {bytes} bytes in C and {rust} in Rust"));
                    }
                    *entries
                }
            };
            if let Some(wanted) = wanted.filter(|wanted| *wanted != entries) {
                drifts.push(format!(
                    "{place} has {entries} elements in C and {wanted} in Rust"
                ));
            }
        }
        let unknown = sides.keys().filter(|place| !crossings.contains_key(*place));
        drifts.extend(unknown.map(|place| format!("{place} is in Rust only")));
        drifts
    }

    fn compare(
        &self,
        c: BtfType<'_>,
        rust: &Shape,
        at: &str,
        enums: &[&Shape],
        drifts: &mut Vec<String>,
    ) {
        let c = bare(c);
        match *rust {
            Shape::Number(bytes) => {
                let in_c = match (Int::try_from(c), Enum::try_from(c), Ptr::try_from(c)) {
                    (Ok(int), ..) => Some(int.size()),
                    (_, Ok(it), _) => {
                        self.compare_enum(it, enums, at, drifts);
                        Some(it.size())
                    }
                    (.., Ok(_)) => Some(8),
                    _ => None,
                };
                match in_c {
                    Some(in_c) if in_c == bytes => {}
                    Some(in_c) => {
                        drifts.push(format!("{at} has {in_c} bytes in C and {bytes} in Rust"))
                    }
                    None => drifts.push(format!("{at} is a number in Rust only")),
                }
            }
            Shape::Array(element, n) => match Array::try_from(c) {
                Ok(array) => {
                    if array.capacity() != n {
                        let in_c = array.capacity();
                        drifts.push(format!("{at} has {in_c} elements in C and {n} in Rust"));
                    }
                    self.compare(array.contained_type(), element, at, enums, drifts);
                }
                Err(_) => drifts.push(format!("{at} is an array in Rust only")),
            },
            Shape::Struct(..) => match Struct::try_from(c) {
                Ok(it) => self.compare_struct(it, rust, at, enums, drifts),
                Err(_) => drifts.push(format!("{at} is a structure in Rust only")),
            },
            Shape::Enum(..) => match Enum::try_from(c) {
                Ok(it) => self.compare_enum(it, &[rust], at, drifts),
                Err(_) => drifts.push(format!("{at} is an enum in Rust only")),
            },
        }
    }

    fn compare_struct(
        &self,
        c: Struct<'_>,
        rust: &Shape,
        at: &str,
        enums: &[&Shape],
        drifts: &mut Vec<String>,
    ) {
        let Shape::Struct(name, size, fields) = *rust else {
            return;
        };
        let c_name = name_of(c.name());
        if c_name != name {
            drifts.push(format!(
                "{at} is struct {c_name} in C and struct {name} in Rust"
            ));
            return;
        }
        if c.size() != size {
            let in_c = c.size();
            drifts.push(format!(
                "struct {name} has {in_c} bytes in C and {size} in Rust"
            ));
        }
        let mut left: Vec<&str> = fields.iter().map(|field| field.name).collect();
        for member in (0..c.len()).filter_map(|i| c.get(i)) {
            let member_name = name_of(member.name);
            let Some(field) = fields.iter().find(|field| field.name == member_name) else {
                drifts.push(format!("struct {name}: field `{member_name}` is in C only"));
                continue;
            };
            left.retain(|it| *it != member_name);
            let MemberAttr::Normal { offset } = member.attr else {
                drifts.push(format!(
                    "struct {name}: field `{member_name}` is a bit field"
                ));
                continue;
            };
            let (in_c, in_rust) = (offset as usize / 8, field.offset);
            if in_c != in_rust {
                drifts.push(format!(
                    "struct {name}: field `{member_name}` is at byte {in_c} in C and at {in_rust} \
                     in Rust"
                ));
            }
            let at = format!("struct {name}: field `{member_name}`");
            self.compare(self.by_id(member.ty), field.shape, &at, enums, drifts);
        }
        let only = |it| format!("struct {name}: field `{it}` is in Rust only");
        drifts.extend(left.into_iter().map(only));
    }

    fn compare_enum(&self, c: Enum<'_>, enums: &[&Shape], at: &str, drifts: &mut Vec<String>) {
        let c_name = name_of(c.name());
        let mut known = enums.iter().filter_map(|shape| match shape {
            Shape::Enum(name, prefix, values) if *name == c_name => Some((*prefix, *values)),
            _ => None,
        });
        let Some((prefix, values)) = known.next() else {
            drifts.push(format!("{at} is an enum {c_name} that Rust does not know"));
            return;
        };
        let mut left: BTreeMap<String, i64> = values
            .iter()
            .map(|(name, value)| (format!("{prefix}{}", loud(name)), *value))
            .collect();
        for member in (0..c.len()).filter_map(|i| c.get(i)) {
            let (name, in_c) = (name_of(member.name), member.value);
            match left.remove(&name) {
                None => drifts.push(format!("enum {c_name}: {name} is in C only")),
                // Constants above 2^31 are negative there.
                Some(in_rust) if in_rust as u32 == in_c as u32 => {}
                Some(in_rust) => drifts.push(format!(
                    "enum {c_name}: {name} is {in_c} in C and {in_rust} in Rust"
                )),
            }
        }
        let only = |name| format!("enum {c_name}: {name} is in Rust only");
        drifts.extend(left.into_keys().map(only));
    }
}

fn size_of_shape(shape: &Shape) -> usize {
    match *shape {
        Shape::Number(bytes) | Shape::Struct(_, bytes, _) => bytes,
        Shape::Array(element, n) => size_of_shape(element) * n,
        Shape::Enum(..) => 4,
    }
}

/// `NotFound` as `NOT_FOUND`; what is written so already stays.
fn loud(name: &str) -> String {
    let mut loud = String::new();
    let mut was_quiet = false;
    for letter in name.chars() {
        if letter.is_uppercase() && was_quiet {
            loud.push('_');
        }
        was_quiet = letter.is_lowercase() || letter.is_ascii_digit();
        loud.extend(letter.to_uppercase());
    }
    loud
}
