//! Types of C in Rust, each written once and with its description, which a test compares with what
//! the C compiler made (`border` of pghot-sources).

use std::sync::atomic::AtomicU64;

/// A type as it is laid out, with C's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A number or a pointer of so many bytes.
    Number(usize),
    /// So many elements.
    Array(&'static Shape, usize),
    /// A structure of this name, of so many bytes.
    Struct(&'static str, usize, &'static [Field]),
    /// An enum of this name: the prefix of its names in C, and its names in Rust with their values.
    Enum(&'static str, &'static str, &'static [(&'static str, i64)]),
}

/// A field of a structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name, the same in both languages.
    pub name: &'static str,
    /// Where it begins, in bytes.
    pub offset: usize,
    /// What it is.
    pub shape: &'static Shape,
}

impl Shape {
    /// Bytes that hold something; less than its size if it has padding.
    const fn bytes_used(&self) -> usize {
        match self {
            Shape::Number(bytes) => *bytes,
            Shape::Array(element, n) => element.bytes_used() * *n,
            Shape::Struct(_, _, fields) => {
                let (mut sum, mut i) = (0, 0);
                while i < fields.len() {
                    sum += fields[i].shape.bytes_used();
                    i += 1;
                }
                sum
            }
            Shape::Enum(..) => size_of::<u32>(),
        }
    }
}

/// The Rust side of a type of C; see [`mirror!`](crate::mirror).
///
/// # Safety
///
/// It is laid out as C does it, `SHAPE` tells how, and whatever bits C writes are values of it.
pub unsafe trait Mirror {
    /// Its description.
    const SHAPE: &'static Shape;
}

macro_rules! numbers_are_mirrors {
    ($($number:ty)*) => { $(
        // SAFETY: C has the same numbers and pointers.
        unsafe impl Mirror for $number {
            const SHAPE: &'static Shape = &Shape::Number(size_of::<$number>());
        }
    )* };
}

numbers_are_mirrors!(u8 u16 u32 u64 i64 AtomicU64 *mut u8 *mut u64);

// SAFETY: arrays of C have no header and no gaps.
unsafe impl<T: Mirror, const N: usize> Mirror for [T; N] {
    const SHAPE: &'static Shape = &Shape::Array(T::SHAPE, N);
}

/// Declares the Rust side of a structure or an enum of C, as `struct Rust = "c" { field: type, }`
/// or `enum Rust = "c", "PREFIX_OF_NAMES_" { Variant, }`; `shape of` describes a type that is
/// there, and `names` constants that an enum of C repeats.
#[macro_export]
macro_rules! mirror {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident = $c:literal {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name { $($(#[$field_meta])* $field_vis $field: $type,)* }

        // SAFETY: `repr(C)`, of fields that are mirrors.
        unsafe impl $crate::Mirror for $name {
            const SHAPE: &'static $crate::Shape =
                $crate::mirror!(shape of $name = $c { $($field: $type,)* });
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident = $c:literal, $prefix:literal {
            $($(#[$variant_meta:meta])* $variant:ident $(= $value:literal)?,)*
        }
    ) => {
        $(#[$meta])*
        #[repr(u32)]
        $vis enum $name { $($(#[$variant_meta])* $variant $(= $value)?,)* }

        impl $name {
            /// Compared with C's.
            #[allow(dead_code, reason = "by tests")]
            $vis const SHAPE: &'static $crate::Shape = &$crate::Shape::Enum(
                $c,
                $prefix,
                &[$((stringify!($variant), $name::$variant as i64)),*],
            );

            /// The one of this number, if there is one.
            $vis fn of_number(number: u32) -> Option<$name> {
                [$($name::$variant),*].into_iter().find(|it| *it as u32 == number)
            }
        }
    };
    (shape of $name:ty = $c:literal { $($field:ident: $type:ty,)* }) => {
        &$crate::Shape::Struct(
            $c,
            size_of::<$name>(),
            &[$($crate::Field {
                name: stringify!($field),
                offset: ::std::mem::offset_of!($name, $field),
                shape: <$type as $crate::Mirror>::SHAPE,
            }),*],
        )
    };
    (names $c:literal, $prefix:literal { $($constant:ident,)* }) => {
        &$crate::Shape::Enum($c, $prefix, &[$((stringify!($constant), $constant as i64)),*])
    };
}

/// The bytes of a mirror, as C reads them.
pub fn bytes_of<T: Mirror + Copy>(value: &T) -> &[u8] {
    const { assert!(T::SHAPE.bytes_used() == size_of::<T>(), "has padding") };
    // SAFETY: it is so long, has no padding, and no cells, for it is `Copy`.
    unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
}

/// The same, to be written.
pub fn bytes_of_mut<T: Mirror + Copy>(value: &mut T) -> &mut [u8] {
    const { assert!(T::SHAPE.bytes_used() == size_of::<T>(), "has padding") };
    // SAFETY: as in `bytes_of`; and all bits are values.
    unsafe { std::slice::from_raw_parts_mut((&raw mut *value).cast(), size_of::<T>()) }
}

/// The first `count` mirrors in memory that C has written, or as many as there are. The memory must
/// be aligned for them, as what is mapped is.
pub fn slice_of<T: Mirror + Copy>(bytes: &[u8], count: usize) -> &[T] {
    let first = bytes.as_ptr().cast::<T>();
    assert!(first.is_aligned(), "mapped memory is aligned to pages");
    // SAFETY: it is aligned, no longer than the bytes, and all bits are values.
    unsafe { std::slice::from_raw_parts(first, count.min(bytes.len() / size_of::<T>())) }
}

/// The mirror in the first of these bytes; `None` if they are too few.
pub fn read<T: Mirror + Copy>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: they are as many, and all bits are values.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    mirror! {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        struct Pair = "pair" {
            word: u64,
            halves: [u16; 4],
        }
    }

    mirror! {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Answer = "answer", "ANSWER_" {
            Yes = 3,
            NotYet,
        }
    }

    #[test]
    fn a_mirror_survives_its_bytes() {
        let pair = Pair {
            word: 7,
            halves: [1, 2, 3, 4],
        };
        assert_eq!(bytes_of(&pair).len(), 16);
        assert_eq!(read::<Pair>(bytes_of(&pair)), Some(pair));
        assert_eq!(read::<Pair>(&bytes_of(&pair)[1..]), None);
        let mut other = pair;
        bytes_of_mut(&mut other)[8] = 9;
        assert_eq!(other.halves, [9, 2, 3, 4]);
        let two = [pair, other];
        // SAFETY: an array of `Pair`, which has no padding.
        let bytes = unsafe { std::slice::from_raw_parts(two.as_ptr().cast::<u8>(), 32) };
        assert_eq!(slice_of::<Pair>(bytes, 5), two);
        assert_eq!(slice_of::<Pair>(bytes, 1), [pair]);
    }

    #[test]
    fn a_mirror_is_described() {
        let Shape::Struct("pair", 16, [word, halves]) = Pair::SHAPE else {
            panic!("{:?}", Pair::SHAPE);
        };
        assert_eq!(
            (word.name, word.offset, word.shape),
            ("word", 0, &Shape::Number(8))
        );
        assert_eq!((halves.name, halves.offset), ("halves", 8));
        assert_eq!(halves.shape, &Shape::Array(&Shape::Number(2), 4));
        let names: &[_] = &[("Yes", 3), ("NotYet", 4)];
        assert_eq!(Answer::SHAPE, &Shape::Enum("answer", "ANSWER_", names));
        assert_eq!(Answer::of_number(4), Some(Answer::NotYet));
        assert_eq!(Answer::of_number(0), None);
    }
}
