//! `bfs`: breadth-first searches of a graph by several threads, level by level, and their check.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use serde::Serialize;

use crate::graph::Graph;
use crate::random::mix;
use crate::sys::{self, ThreadUsage};

/// The parent of a vertex that was not reached.
const NOBODY: u32 = u32::MAX;

/// Vertices of a frontier that a thread takes at once: few enough that all threads have some, since
/// the vertices with most edges take long.
const CHUNK: usize = 64;

/// What a search found. It does not depend on the number of threads, apart from the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Search {
    /// Where it began.
    pub source: u32,
    /// Vertices reached, the source among them.
    pub reached: u64,
    /// The levels of all vertices reached, added up; the source's is 0.
    pub level_sum: u64,
    /// Levels, the source's among them.
    pub levels: u64,
    /// Edges between the vertices reached.
    pub edges: u64,
    /// How long it took.
    pub seconds: f64,
}

/// What the threads of a search share.
struct Shared<'a> {
    graph: &'a Graph<'a>,
    barrier: Barrier,
    /// The next vertex of the frontier that nobody has taken.
    taken: AtomicUsize,
    /// Vertices in the next frontier.
    found: AtomicUsize,
    /// Entries of the rows looked at: each edge twice.
    looked_at: AtomicU64,
}

/// Searches from `source`. The threads run on `cpus` in turn, or anywhere if there are none.
pub fn search(
    graph: &Graph,
    source: u32,
    threads: u32,
    cpus: &[u32],
) -> Result<(Search, ThreadUsage)> {
    let shared = &Shared {
        graph,
        barrier: Barrier::new(threads as usize),
        taken: AtomicUsize::new(0),
        found: AtomicUsize::new(0),
        looked_at: AtomicU64::new(0),
    };
    let started = Instant::now();
    let (levels, usage) = thread::scope(|scope| {
        let worker = |number: u32| {
            let cpu = cpus.iter().cycle().nth(number as usize).copied();
            scope.spawn(move || {
                // Searched all the same if it fails: the others wait at the barrier.
                let pinned = cpu.map_or(Ok(()), |cpu| sys::run_on(&[cpu]));
                let before = sys::thread_usage();
                let levels = shared.work(source, number, threads);
                pinned?;
                Ok((levels, sys::thread_usage()?.since(before?)))
            })
        };
        let workers: Vec<_> = (0..threads).map(worker).collect();
        let mut levels = Vec::new();
        let mut usage = ThreadUsage::default();
        for worker in workers {
            let done: Result<_> = worker.join().map_err(|_| anyhow!("a worker panicked"))?;
            let (its_levels, its_usage) = done?;
            // Each counted the same.
            levels = its_levels;
            usage += its_usage;
        }
        anyhow::Ok((levels, usage))
    })?;
    let found = Search {
        source,
        reached: levels.iter().sum(),
        level_sum: (0..).zip(&levels).map(|(level, count)| level * count).sum(),
        levels: levels.len() as u64,
        edges: shared.looked_at.load(Ordering::Relaxed) / 2,
        seconds: started.elapsed().as_secs_f64(),
    };
    Ok((found, usage))
}

impl Shared<'_> {
    /// One thread of a search. Returns how many vertices each level has.
    fn work(&self, source: u32, number: u32, threads: u32) -> Vec<u64> {
        let parents = self.graph.parents();
        for parent in &parents[share(parents.len(), threads, number)] {
            parent.store(NOBODY, Ordering::Relaxed);
        }
        let [mut frontier, mut next] = self.graph.frontiers();
        self.barrier.wait();
        if number == 0 {
            parents[source as usize].store(source, Ordering::Relaxed);
            frontier[0].store(source, Ordering::Relaxed);
        }
        let mut size = 1;
        let mut levels = Vec::new();
        while size > 0 {
            levels.push(size as u64);
            self.barrier.wait();
            self.expand(&frontier[..size], next);
            self.barrier.wait();
            size = self.found.load(Ordering::Relaxed);
            // All have read it before one begins anew.
            if self.barrier.wait().is_leader() {
                self.found.store(0, Ordering::Relaxed);
                self.taken.store(0, Ordering::Relaxed);
            }
            (frontier, next) = (next, frontier);
        }
        levels
    }

    /// Looks at the neighbours of the frontier, as far as the other threads have not, and puts
    /// those not reached before into the next one.
    fn expand(&self, frontier: &[AtomicU32], next: &[AtomicU32]) {
        let parents = self.graph.parents();
        let mut looked_at = 0;
        let mut found = Vec::new();
        loop {
            let start = self.taken.fetch_add(CHUNK, Ordering::Relaxed);
            if start >= frontier.len() {
                break;
            }
            for vertex in &frontier[start..frontier.len().min(start + CHUNK)] {
                let vertex = vertex.load(Ordering::Relaxed);
                let row = self.graph.neighbours_of(vertex);
                looked_at += row.len() as u64;
                for neighbour in row {
                    let neighbour = neighbour.load(Ordering::Relaxed);
                    let parent = &parents[neighbour as usize];
                    // A look is cheap, and an atomic exchange is not.
                    if parent.load(Ordering::Relaxed) == NOBODY && claim(parent, vertex) {
                        found.push(neighbour);
                    }
                }
            }
            let place = self.found.fetch_add(found.len(), Ordering::Relaxed);
            for (slot, vertex) in next[place..].iter().zip(found.drain(..)) {
                slot.store(vertex, Ordering::Relaxed);
            }
        }
        self.looked_at.fetch_add(looked_at, Ordering::Relaxed);
    }
}

/// Becomes the parent, unless another thread is quicker.
fn claim(parent: &AtomicU32, vertex: u32) -> bool {
    parent
        .compare_exchange(NOBODY, vertex, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}

/// What one of the threads has of `count` things.
fn share(count: usize, threads: u32, number: u32) -> Range<usize> {
    let border = |number: u32| count * number as usize / threads as usize;
    border(number)..border(number + 1)
}

/// A number for the results of several searches, to compare runs by.
pub fn checksum(searches: &[Search]) -> u64 {
    let of = |sum, search: &Search| {
        [u64::from(search.source), search.reached, search.level_sum]
            .into_iter()
            .fold(sum, |sum, number| mix(sum ^ number))
    };
    searches.iter().fold(0, of)
}

/// Edges traversed in a second, by the harmonic mean over the searches; none without edges.
pub fn traversed_per_s(searches: &[Search]) -> Option<f64> {
    let inverse: f64 = searches
        .iter()
        .map(|search| search.seconds / search.edges as f64)
        .sum();
    (inverse > 0.0 && inverse.is_finite()).then(|| searches.len() as f64 / inverse)
}

/// Checks the parents that the last search left, by the rules of Graph500: they are a tree from the
/// source, by edges of the graph, and no edge spans more than a level.
pub fn check(graph: &Graph, search: &Search) -> Result<()> {
    let levels = levels(graph, search.source)?;
    let parents = graph.parents();
    for vertex in 0..graph.vertices() as u32 {
        let row = || graph.neighbours_of(vertex).iter();
        let level = levels[vertex as usize];
        for neighbour in row() {
            let neighbour = neighbour.load(Ordering::Relaxed);
            let is_near = match (level, levels[neighbour as usize]) {
                (Some(one), Some(other)) => one.abs_diff(other) <= 1,
                (one, other) => one == other,
            };
            ensure!(
                is_near,
                "the edge from vertex {vertex} to {neighbour} skips a level"
            );
        }
        let parent = parents[vertex as usize].load(Ordering::Relaxed);
        let is_edge = || row().any(|neighbour| neighbour.load(Ordering::Relaxed) == parent);
        ensure!(
            parent == NOBODY || vertex == search.source || is_edge(),
            "there is no edge from vertex {vertex} to its parent {parent}"
        );
    }
    let reached = levels.iter().flatten();
    let (count, sum) = (reached.clone().count() as u64, reached.sum::<u64>());
    ensure!(
        (count, sum) == (search.reached, search.level_sum),
        "the parents make {count} vertices with levels of {sum} in all, the search {} with {}",
        search.reached,
        search.level_sum
    );
    Ok(())
}

/// The level of each vertex, by its way up to the source.
fn levels(graph: &Graph, source: u32) -> Result<Vec<Option<u64>>> {
    let parents = graph.parents();
    let mut levels = vec![None; graph.vertices()];
    levels[source as usize] = Some(0);
    let mut way = Vec::new();
    for first in 0..graph.vertices() as u32 {
        let mut vertex = first;
        while levels[vertex as usize].is_none() {
            let parent = parents[vertex as usize].load(Ordering::Relaxed);
            if parent == NOBODY && way.is_empty() {
                break;
            }
            ensure!(
                (parent as usize) < levels.len() && way.len() < levels.len(),
                "the parents of vertex {first} do not lead to the source"
            );
            way.push(vertex);
            vertex = parent;
        }
        for vertex in way.drain(..).rev() {
            let parent = parents[vertex as usize].load(Ordering::Relaxed);
            levels[vertex as usize] = levels[parent as usize].map(|level: u64| level + 1);
        }
    }
    Ok(levels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Shape;
    use crate::graph::tests::region_for;
    use std::collections::VecDeque;

    const SHAPE: Shape = Shape {
        scale: 9,
        degree: 2,
        seed: 5,
    };

    /// A queue and a map, nothing else.
    fn reference(graph: &Graph, source: u32) -> Vec<Option<u64>> {
        let mut levels = vec![None; graph.vertices()];
        levels[source as usize] = Some(0);
        let mut queue = VecDeque::from([(source, 0)]);
        while let Some((vertex, level)) = queue.pop_front() {
            for neighbour in graph.neighbours_of(vertex) {
                let neighbour = neighbour.load(Ordering::Relaxed);
                let place: &mut Option<u64> = &mut levels[neighbour as usize];
                if place.is_none() {
                    *place = Some(level + 1);
                    queue.push_back((neighbour, level + 1));
                }
            }
        }
        levels
    }

    #[test]
    fn a_search_finds_the_levels_with_any_number_of_threads() {
        let region = region_for(SHAPE);
        let graph = Graph::build(SHAPE, &region).unwrap();
        for source in graph.sources(8) {
            let expected = reference(&graph, source);
            for threads in [1, 2, 5] {
                let (found, _) = search(&graph, source, threads, &[]).unwrap();
                assert_eq!(levels(&graph, source).unwrap(), expected);
                check(&graph, &found).unwrap();
                let reached = expected.iter().flatten();
                assert_eq!(found.reached, reached.clone().count() as u64);
                assert_eq!(found.level_sum, reached.clone().sum::<u64>());
                assert_eq!(found.levels, reached.max().unwrap() + 1);
                let degree = |(vertex, _): (usize, _)| graph.neighbours_of(vertex as u32).len();
                let tree = expected
                    .iter()
                    .enumerate()
                    .filter(|(_, level)| level.is_some());
                assert_eq!(found.edges as usize, tree.map(degree).sum::<usize>() / 2);
            }
        }
    }

    #[test]
    fn the_check_finds_wrong_parents() {
        let region = region_for(SHAPE);
        let graph = Graph::build(SHAPE, &region).unwrap();
        let source = graph.sources(1)[0];
        let (found, _) = search(&graph, source, 1, &[]).unwrap();
        let level = levels(&graph, source).unwrap();
        let leaf = (0..).find(|v: &u32| level[*v as usize] > Some(1)).unwrap();
        let parent = &graph.parents()[leaf as usize];
        let right = parent.load(Ordering::Relaxed);
        // Not reached, no edge, a circle, nobody at all.
        for wrong in [NOBODY, source, leaf, NOBODY - 1] {
            parent.store(wrong, Ordering::Relaxed);
            assert!(check(&graph, &found).is_err(), "{wrong}");
        }
        parent.store(right, Ordering::Relaxed);
        check(&graph, &found).unwrap();
        let miscounted = Search {
            reached: found.reached + 1,
            ..found
        };
        assert!(check(&graph, &miscounted).is_err());
    }

    #[test]
    fn the_mean_is_harmonic() {
        let search = |edges, seconds| Search {
            source: 0,
            reached: 1,
            level_sum: 0,
            levels: 1,
            edges,
            seconds,
        };
        let mean = traversed_per_s(&[search(100, 1.0), search(300, 1.0)]).unwrap();
        assert!((mean - 150.0).abs() < 1e-9, "{mean}");
        assert_eq!(traversed_per_s(&[]), None);
    }
}
