//! A random graph with skewed degrees in a region of memory, as arrays of compressed sparse rows.
//!
//! R-MAT with the parameters of the Graph500 benchmark: few vertices have most of the edges, so
//! that some pages are much hotter than others. Vertices are renamed at random, or the hot ones
//! would lie next to each other. The arrays take every word of the region, the stamps of its pages
//! too.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::random::{XorShift, mix};
use crate::region::Region;

/// Of 100 edges, how many fall into the quarters of the matrix: a, b, c. The rest is d, 5.
const QUARTERS: [u32; 3] = [57, 19, 19];

/// What a graph is made from. The same shape is the same graph everywhere.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// It has two to the power of so many vertices.
    pub scale: u32,
    /// Edges drawn for each vertex.
    pub degree: u32,
    /// Decides the edges.
    pub seed: u64,
}

/// One of the arrays, as it lies in the region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Array {
    /// What it holds.
    pub name: &'static str,
    /// Its first page, counted from the start of the region.
    pub first_page: usize,
    /// Its bytes; the next array begins on a page of its own.
    pub bytes: usize,
}

/// The graph, and room for searches.
pub struct Graph<'a> {
    shape: Shape,
    region: &'a Region,
    /// In order: see [`Shape::arrays`].
    arrays: [Array; 5],
}

impl Shape {
    /// Vertices.
    pub fn vertices(&self) -> usize {
        1 << self.scale
    }

    fn draws(&self) -> u64 {
        (self.vertices() as u64) * u64::from(self.degree)
    }

    /// Bytes of a region that the graph fits in.
    pub fn bytes(&self, page_bytes: usize) -> usize {
        let [.., last] = self.arrays(page_bytes);
        last.first_page * page_bytes + last.bytes.next_multiple_of(page_bytes)
    }

    /// The arrays. Neighbours have room for edges from a vertex to itself, which are left out
    /// later.
    fn arrays(&self, page_bytes: usize) -> [Array; 5] {
        let (long, short) = (size_of::<u64>(), size_of::<u32>());
        let vertices = self.vertices();
        let mut next_page = 0;
        [
            ("offsets", (vertices + 1) * long),
            ("neighbours", 2 * self.draws() as usize * short),
            ("parents", vertices * short),
            ("frontier", vertices * short),
            ("next_frontier", vertices * short),
        ]
        .map(|(name, bytes)| {
            let first_page = next_page;
            next_page += bytes.div_ceil(page_bytes);
            Array {
                name,
                first_page,
                bytes,
            }
        })
    }

    /// All edges, always in the same order, each between two vertices.
    fn edges(self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.draws())
            .map(move |number| self.edge(number))
            .filter(|(one, other)| one != other)
    }

    /// Chooses a quarter of the matrix, a quarter of that, and so on down to one entry.
    fn edge(self, number: u64) -> (u32, u32) {
        let mut random = XorShift::new(mix(self.seed) ^ number);
        let [a, b, c] = QUARTERS;
        let (mut row, mut column) = (0, 0);
        for _ in 0..self.scale {
            let draw = random.below(100);
            row = row << 1 | u32::from(draw >= a + b);
            column = column << 1 | u32::from((a..a + b).contains(&draw) || draw >= a + b + c);
        }
        (self.rename(row), self.rename(column))
    }

    /// A permutation of the vertices: odd factors and shifts to the right can be undone.
    fn rename(self, vertex: u32) -> u32 {
        let mask = self.vertices() as u64 - 1;
        let factor = mix(!self.seed) | 1;
        let mixed = u64::from(vertex).wrapping_mul(factor) & mask;
        let mixed = mixed ^ mixed >> self.scale.div_ceil(2);
        (mixed.wrapping_mul(factor) & mask) as u32
    }
}

impl<'a> Graph<'a> {
    /// Makes the graph in `region`, which has [`Shape::bytes`]. Edges are drawn twice, to be
    /// counted and to be put in place, so that no memory but the region is needed.
    pub fn build(shape: Shape, region: &'a Region) -> Result<Graph<'a>> {
        let arrays = shape.arrays(region.page_bytes());
        ensure!(
            shape.bytes(region.page_bytes()) <= region.range().len(),
            "the graph does not fit in the memory"
        );
        let mut graph = Graph {
            shape,
            region,
            arrays,
        };
        let offsets = graph.offsets();
        for offset in offsets {
            offset.store(0, Ordering::Relaxed);
        }
        for (one, other) in shape.edges() {
            add(&offsets[one as usize], 1);
            add(&offsets[other as usize], 1);
        }
        let mut end = 0;
        for offset in offsets {
            end += offset.load(Ordering::Relaxed);
            offset.store(end, Ordering::Relaxed);
        }
        // Each row is filled from its end, so that its offset ends as its start.
        let neighbours = graph.halves(1);
        let put = |from: u32, to: u32| {
            let place = add(&offsets[from as usize], -1);
            neighbours[place as usize].store(to, Ordering::Relaxed);
        };
        for (one, other) in shape.edges() {
            put(one, other);
            put(other, one);
        }
        graph.arrays[1].bytes = end as usize * size_of::<u32>();
        Ok(graph)
    }

    /// Where the arrays lie.
    pub fn arrays(&self) -> &[Array] {
        &self.arrays
    }

    /// Vertices.
    pub fn vertices(&self) -> usize {
        self.shape.vertices()
    }

    /// Edges; one that was drawn twice counts twice.
    pub fn edges(&self) -> u64 {
        self.neighbours().len() as u64 / 2
    }

    /// The vertices that share an edge with `vertex`.
    pub fn neighbours_of(&self, vertex: u32) -> &[AtomicU32] {
        let offsets = self.offsets();
        let offset = |vertex: usize| offsets[vertex].load(Ordering::Relaxed) as usize;
        &self.neighbours()[offset(vertex as usize)..offset(vertex as usize + 1)]
    }

    /// Room for the vertex from which each was reached.
    pub fn parents(&self) -> &[AtomicU32] {
        self.halves(2)
    }

    /// Room for the vertices that were reached last, and for those reached next.
    pub fn frontiers(&self) -> [&[AtomicU32]; 2] {
        [self.halves(3), self.halves(4)]
    }

    /// A number for each page of the graph, which changes with its content. Searches do not change
    /// it.
    pub fn page_sums(&self) -> Vec<u64> {
        let neighbours = &self.arrays[1];
        let bytes = self.region.page_bytes();
        let pages = neighbours.first_page + neighbours.bytes.div_ceil(bytes);
        let words = &self.region.half_words()[..pages * (bytes / size_of::<u32>())];
        let sum = |page: &[AtomicU32]| {
            page.iter().fold(0, |sum, word| {
                mix(sum ^ u64::from(word.load(Ordering::Relaxed)))
            })
        };
        words.chunks(bytes / size_of::<u32>()).map(sum).collect()
    }

    /// Vertices to search from, each with an edge.
    pub fn sources(&self, count: u32) -> Vec<u32> {
        let mut random = XorShift::new(self.shape.seed);
        let mut vertex = move || random.below(self.vertices() as u32);
        std::iter::from_fn(|| Some(vertex()))
            .filter(|vertex| !self.neighbours_of(*vertex).is_empty())
            .take(if self.edges() > 0 { count as usize } else { 0 })
            .collect()
    }

    fn offsets(&self) -> &'a [AtomicU64] {
        &self.region.words()[..=self.vertices()]
    }

    fn neighbours(&self) -> &'a [AtomicU32] {
        self.halves(1)
    }

    fn halves(&self, array: usize) -> &'a [AtomicU32] {
        let Array {
            first_page, bytes, ..
        } = self.arrays[array];
        let start = first_page * self.region.page_bytes() / size_of::<u32>();
        let range: Range<usize> = start..start + bytes / size_of::<u32>();
        &self.region.half_words()[range]
    }
}

/// Adds without the cost of an atomic addition, for one thread alone. Returns the sum.
fn add(to: &AtomicU64, number: i64) -> u64 {
    let sum = to.load(Ordering::Relaxed).wrapping_add_signed(number);
    to.store(sum, Ordering::Relaxed);
    sum
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::region::Backing;
    use std::path::Path;

    pub(crate) fn region_for(shape: Shape) -> Region {
        let bytes = shape.bytes(crate::sys::page_bytes());
        let region = Region::map(bytes, Backing::Anon, 0, Path::new("/")).unwrap();
        region.populate(1).unwrap();
        region
    }

    #[test]
    fn rows_hold_each_edge_in_both_directions() {
        for scale in [1, 2, 7] {
            let (degree, seed) = (8, 3);
            let shape = Shape {
                scale,
                degree,
                seed,
            };
            let region = region_for(shape);
            let graph = Graph::build(shape, &region).unwrap();
            let mut drawn: Vec<_> = shape.edges().flat_map(|(a, b)| [(a, b), (b, a)]).collect();
            let mut found = Vec::new();
            for vertex in 0..graph.vertices() as u32 {
                let row = graph.neighbours_of(vertex).iter();
                found.extend(row.map(|to| (vertex, to.load(Ordering::Relaxed))));
            }
            assert_eq!(graph.edges() as usize, drawn.len() / 2);
            drawn.sort_unstable();
            found.sort_unstable();
            assert_eq!(drawn, found);
        }
    }

    #[test]
    fn renaming_is_a_permutation() {
        for scale in [1, 2, 5, 12] {
            let (degree, seed) = (1, 9);
            let shape = Shape {
                scale,
                degree,
                seed,
            };
            let mut names: Vec<u32> = (0..1 << scale).map(|v| shape.rename(v)).collect();
            names.sort_unstable();
            assert!(names.into_iter().eq(0..1 << scale));
        }
    }

    #[test]
    fn few_vertices_have_most_edges() {
        let shape = Shape {
            scale: 12,
            degree: 16,
            seed: 1,
        };
        let region = region_for(shape);
        let graph = Graph::build(shape, &region).unwrap();
        let degree = |vertex| graph.neighbours_of(vertex).len();
        let mut degrees: Vec<usize> = (0..1 << 12).map(degree).collect();
        degrees.sort_unstable();
        let top: usize = degrees.iter().rev().take(degrees.len() / 10).sum();
        let all: usize = degrees.iter().sum();
        assert!(top * 2 > all, "a tenth has {top} of {all}");
        assert!(graph.sources(50).iter().all(|vertex| degree(*vertex) > 0));
    }

    #[test]
    fn a_changed_page_changes_its_sum_alone() {
        let shape = Shape {
            scale: 10,
            degree: 4,
            seed: 1,
        };
        let region = region_for(shape);
        let graph = Graph::build(shape, &region).unwrap();
        let before = graph.page_sums();
        graph.neighbours()[3].fetch_xor(1, Ordering::Relaxed);
        let after = graph.page_sums();
        let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert_eq!(changed, 1);
    }
}
