//! Drifts are planted on the Rust side, one after another, and each must be named.

use std::collections::BTreeSet;

use pghot_hotness::{Field, Shape};

use super::btf::{Side, Sides};
use super::objects;

fn leak<T>(it: T) -> &'static T {
    Box::leak(Box::new(it))
}

/// The shape with all that `plant` changes in it.
fn planted(shape: &'static Shape, plant: &dyn Fn(Shape) -> Shape) -> &'static Shape {
    leak(plant(match *shape {
        Shape::Number(_) | Shape::Enum(..) => *shape,
        Shape::Array(element, n) => Shape::Array(planted(element, plant), n),
        Shape::Struct(name, size, fields) => {
            let field = |field: &Field| Field {
                shape: planted(field.shape, plant),
                ..*field
            };
            Shape::Struct(
                name,
                size,
                leak(fields.iter().map(field).collect::<Vec<_>>()),
            )
        }
    }))
}

/// All structures and enums in a shape.
fn named_in(shape: &Shape, found: &mut BTreeSet<(&'static str, bool)>) {
    match *shape {
        Shape::Number(_) => {}
        Shape::Array(element, _) => named_in(element, found),
        Shape::Enum(name, ..) => {
            found.insert((name, false));
        }
        Shape::Struct(name, _, fields) => {
            found.insert((name, true));
            fields.iter().for_each(|field| named_in(field.shape, found));
        }
    }
}

/// A structure that was changed at its last field, with the sentence's beginning.
type Drift = (&'static str, fn(usize, &mut Vec<Field>) -> (usize, String));

const STRUCT_DRIFTS: &[Drift] = &[
    ("a field moved", |size, fields| {
        let last = fields.last_mut().unwrap();
        last.offset += 2;
        (size, format!("field `{}` is at byte", last.name))
    }),
    ("a field renamed", |size, fields| {
        fields.last_mut().unwrap().name = "renamed";
        (size, "field `renamed` is in Rust only".into())
    }),
    ("a field forgotten", |size, fields| {
        let name = fields.pop().unwrap().name;
        (size, format!("field `{name}` is in C only"))
    }),
    ("a field of another size", |size, fields| {
        let last = fields.last_mut().unwrap();
        last.shape = match last.shape {
            Shape::Array(element, n) => leak(Shape::Array(element, n + 1)),
            _ => &Shape::Number(3),
        };
        (size, format!("field `{}` ", last.name))
    }),
    ("the structure grown", |size, _| {
        (size + 8, format!("bytes in C and {} in Rust", size + 8))
    }),
];

type EnumDrift = (&'static str, fn(&mut Vec<(&'static str, i64)>));

const ENUM_DRIFTS: &[EnumDrift] = &[
    ("an enumerator renumbered", |values| {
        values.last_mut().unwrap().1 += 1
    }),
    ("an enumerator renamed", |values| {
        values.last_mut().unwrap().0 = "Renamed"
    }),
    ("an enumerator forgotten", |values| {
        values.pop();
    }),
];

fn plant_all(sides: &Sides, plant: &dyn Fn(Shape) -> Shape) -> Sides {
    let side = |side: &Side| match *side {
        Side::Is(shape) => Side::Is(planted(shape, plant)),
        Side::Elements(shape, n) => Side::Elements(planted(shape, plant), n),
        nothing => nothing,
    };
    sides
        .iter()
        .map(|(place, it)| (place.clone(), side(it)))
        .collect()
}

#[test]
fn every_planted_drift_is_named() {
    let mut structures = 0;
    for (object_name, object, sides, enums) in objects() {
        let mut names = BTreeSet::new();
        for side in sides.values() {
            if let Side::Is(shape) | Side::Elements(shape, _) = side {
                named_in(shape, &mut names);
            }
        }
        enums.iter().for_each(|shape| named_in(shape, &mut names));
        for (name, is_struct) in names {
            structures += 1;
            let drifts = match is_struct {
                true => STRUCT_DRIFTS.len(),
                false => ENUM_DRIFTS.len(),
            };
            for i in 0..drifts {
                let sentence = std::cell::RefCell::new(String::new());
                let plant = |shape: Shape| match shape {
                    Shape::Struct(it, size, fields) if it == name => {
                        let mut fields = fields.to_vec();
                        let (size, expected) = STRUCT_DRIFTS[i].1(size, &mut fields);
                        *sentence.borrow_mut() = expected;
                        Shape::Struct(it, size, leak(fields))
                    }
                    Shape::Enum(it, prefix, values) if it == name => {
                        let mut values = values.to_vec();
                        ENUM_DRIFTS[i].1(&mut values);
                        Shape::Enum(it, prefix, leak(values))
                    }
                    other => other,
                };
                let (sides, enums): (_, Vec<_>) = (
                    plant_all(&sides, &plant),
                    enums.iter().map(|shape| planted(shape, &plant)).collect(),
                );
                let found = object.drifts(&sides, &enums);
                let what = if is_struct {
                    STRUCT_DRIFTS[i].0
                } else {
                    ENUM_DRIFTS[i].0
                };
                let sentence = sentence.into_inner();
                let named = found
                    .iter()
                    .filter(|it| it.contains(name) && it.contains(&sentence));
                assert!(
                    named.count() > 0,
                    "{object_name}, {name}: {what} is not seen: {found:?}"
                );
            }
        }
    }
    assert!(structures > 40, "{structures}");
}

#[test]
fn nothing_is_left_out() {
    for (name, object, sides, enums) in objects() {
        for place in sides.keys() {
            let mut fewer = sides.clone();
            fewer.remove(place);
            let expected = format!("{place} crosses, and Rust has nothing for it");
            assert_eq!(object.drifts(&fewer, &enums), [expected], "{name}");
        }
        let mut more = sides.clone();
        more.insert("map of nobody".into(), Side::Nothing("it is not there"));
        assert_eq!(
            object.drifts(&more, &enums),
            ["map of nobody is in Rust only"],
            "{name}"
        );
    }
}
