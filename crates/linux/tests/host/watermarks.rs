//! Room and free-space shortcut from `/proc/zoneinfo`.

use pghot_linux::SysRoot;
use pghot_linux::watermarks::Watermarks;
use pghot_linux::zoneinfo::ZoneKind;

use crate::fake::FakeTree;

const GIB_PAGES: u64 = 1 << 18;

/// Zone text in the kernel's format; min, low and high are 1, 2 and 3 quarters of promo.
pub struct Zone {
    name: &'static str,
    free: u64,
    promo: u64,
    present: u64,
    protection: &'static str,
    cma: u64,
}

const EMPTY: Zone = Zone {
    name: "",
    free: 0,
    promo: 0,
    present: 0,
    protection: "(0, 0, 0, 0, 0)",
    cma: 0,
};

pub fn zoneinfo(nodes: &[&[Zone]], with_promo: bool, cpus: u32) -> String {
    let mut text = String::new();
    for (nid, zones) in nodes.iter().enumerate() {
        for (index, zone) in zones.iter().enumerate() {
            let Zone {
                name,
                free,
                promo,
                present,
                protection,
                cma,
            } = zone;
            text += &format!("Node {nid}, zone {name:>8}\n");
            if index == 0 {
                text +=
                    "  per-node stats\n      nr_inactive_anon 1197\n      pgpromote_success 0\n";
            }
            let quarter = promo / 4;
            text += &format!("  pages free     {free}\n        boost    0\n");
            text += &format!(
                "        min      {quarter}\n        low      {}\n",
                quarter * 2
            );
            text += &format!("        high     {}\n", quarter * 3);
            if with_promo {
                text += &format!("        promo    {promo}\n");
            }
            text += &format!("        spanned  {present}\n        present  {present}\n");
            text += &format!("        managed  {present}\n        cma      {cma}\n");
            text += &format!("        protection: {protection}\n");
            if *present == 0 {
                continue;
            }
            text += &format!("      nr_free_pages {free}\n      nr_free_cma  {cma}\n  pagesets\n");
            for cpu in 0..cpus {
                text += &format!("    cpu: {cpu}\n              count:    0\n");
                text += "              high:     9\n              batch:    1\n";
                text += "              high_min: 31\n  vm stats threshold: 4\n";
            }
            text += "  node_unreclaimable:  0\n  start_pfn:           1\n";
        }
    }
    text
}

fn read(text: &str) -> Watermarks {
    let tree = FakeTree::new();
    tree.proc("zoneinfo", text);
    Watermarks::open(&tree.root).expect("a good zoneinfo")
}

pub fn low_node() -> [Zone; 5] {
    [
        Zone {
            name: "DMA",
            free: 3000,
            promo: 100,
            present: 3840,
            protection: "(0, 9, 9, 9, 9)",
            cma: 0,
        },
        Zone {
            name: "DMA32",
            free: 5000,
            promo: 400,
            present: 700000,
            protection: "(0, 0, 1920, 2000, 2000)",
            cma: 0,
        },
        Zone {
            name: "Normal",
            free: 1000,
            promo: 800,
            present: 100000,
            ..EMPTY
        },
        Zone {
            name: "Movable",
            ..EMPTY
        },
        Zone {
            name: "Device",
            ..EMPTY
        },
    ]
}

fn far_node(normal_free: u64) -> [Zone; 5] {
    [
        Zone {
            name: "DMA",
            ..EMPTY
        },
        Zone {
            name: "DMA32",
            ..EMPTY
        },
        Zone {
            name: "Normal",
            free: normal_free,
            promo: 800,
            present: 2 * GIB_PAGES,
            ..EMPTY
        },
        Zone {
            name: "Movable",
            ..EMPTY
        },
        Zone {
            name: "Device",
            ..EMPTY
        },
    ]
}

#[test]
fn room_is_what_lies_above_high_and_the_reserve() {
    let watermarks = read(&zoneinfo(&[&low_node(), &far_node(599)], true, 3));
    assert_eq!(watermarks.zones().len(), 10);
    // DMA32: 5000 - 300 - 2000; Normal: 1000 - 600; DMA is not counted.
    assert_eq!(watermarks.room_pages(0, None), 2700 + 400);
    assert_eq!(
        watermarks.room_pages(1, None),
        0,
        "below the high watermark"
    );
    assert_eq!(watermarks.room_pages(5, None), 0, "unknown node");
    let zones = watermarks.zones();
    let floor = |zone: usize| (zones[zone].min_pages + zones[zone].low_pages) / 2;
    let with_reclaim = watermarks.room_with_reclaim_pages(0);
    assert_eq!(with_reclaim, 5000 - floor(1) - 2000 + 1000 - floor(2));
    assert!(with_reclaim > 2700 + 400 && floor(2) > zones[2].min_pages);
}

#[test]
fn pages_in_the_list_at_hand_are_room() {
    let room = |cpu: Option<u32>| {
        let nodes = [&far_node(590)[..], &far_node(700), &far_node(500)];
        let text = zoneinfo(&nodes, true, 12);
        let tree = FakeTree::new();
        let list = |pages: u64| format!("cpu: 1\n              count:    {pages}\n");
        tree.proc("zoneinfo", &text.replace(&list(0), &list(100)));
        let watermarks = Watermarks::open(&tree.root).unwrap();
        [0, 1, 2].map(|nid| watermarks.room_pages(nid, cpu))
    };
    // Low is 400 and high 600.
    let without = [0, 100, 0];
    assert_eq!(room(None), without);
    assert_eq!(room(Some(1)), [26, 136, 0], "all but a batch of 64");
    assert_eq!(room(Some(11)), without, "pages are elsewhere");
    assert_eq!(room(Some(12)), without, "there is no such CPU");
}

/// Until all zones are read again, which may take a hundredth of the time at most.
#[test]
fn what_was_taken_from_a_list_is_not_there_a_second_time() {
    let tree = FakeTree::new();
    let text = zoneinfo(&[&far_node(590)], true, 1);
    tree.proc("zoneinfo", &text.replace("count:    0", "count:    150"));
    let mut watermarks = Watermarks::open(&tree.root).unwrap();
    let room = |watermarks: &Watermarks| watermarks.room_pages(0, Some(0));
    assert_eq!(room(&watermarks), 150 - 64 - 10);
    watermarks.note_taken(0, 70);
    assert_eq!(room(&watermarks), 6);
    watermarks.note_taken(1, 70);
    assert_eq!(room(&watermarks), 6, "of another node");
    watermarks.note_taken(0, 70);
    assert_eq!(room(&watermarks), 0);
    watermarks.refresh().unwrap();
    assert_eq!(room(&watermarks), 150 - 64 - 10);
}

#[test]
fn a_zone_keeps_half_a_step_above_its_low_watermark() {
    let tree = FakeTree::new();
    let text = zoneinfo(&[&far_node(590)], true, 1);
    tree.proc("zoneinfo", &text.replace("count:    0", "count:    5000"));
    let watermarks = Watermarks::open(&tree.root).unwrap();
    assert_eq!(watermarks.room_pages(0, Some(0)), 590 - 500);
}

#[test]
fn what_fills_up_a_list_is_left_above_the_low_watermark() {
    let room = |free, list_max: &str| {
        let text = zoneinfo(&[&far_node(free)], true, 2);
        let lists = format!("high_min: 31\n              {list_max}\n");
        read(&text.replace("high_min: 31\n", &lists)).room_pages(0, Some(1))
    };
    // Low is 400 and high 600.
    assert_eq!(room(2600, ""), 2000, "before 6.7");
    assert_eq!(room(2600, "high_max: 100"), 2000, "shorter than a step");
    assert_eq!(room(2600, "high_max: 1000"), 2600 - 1400);
    assert_eq!(room(2600, "high_max: 100000"), 2600 - 400 - 2048);
    assert_eq!(room(2400, "high_max: 100000"), 0);
}

#[test]
fn zone_fields() {
    let watermarks = read(&zoneinfo(&[&low_node()], true, 2));
    let dma32 = watermarks.zones()[1];
    assert_eq!((dma32.nid, dma32.kind), (0, ZoneKind::Dma32));
    assert_eq!(
        (dma32.free_pages, dma32.min_pages, dma32.low_pages),
        (5000, 100, 200)
    );
    assert_eq!((dma32.high_pages, dma32.promo_pages), (300, Some(400)));
    assert_eq!((dma32.present_pages, dma32.managed_pages), (700000, 700000));
    assert_eq!(dma32.protection_pages[..5], [0, 0, 1920, 2000, 2000]);
    assert_eq!(watermarks.zones()[4].kind, ZoneKind::Device);
}

#[test]
fn shortcut_needs_more_than_promo_and_a_gib() {
    for with_promo in [true, false] {
        let at = |free| read(&zoneinfo(&[&far_node(free)], with_promo, 1)).free_space_shortcut(0);
        assert!(!at(GIB_PAGES + 800), "promo printed: {with_promo}");
        assert!(at(GIB_PAGES + 801), "promo printed: {with_promo}");
    }
    let mut with_cma = far_node(GIB_PAGES + 900);
    with_cma[2].cma = 100;
    assert!(
        !read(&zoneinfo(&[&with_cma], true, 1)).free_space_shortcut(0),
        "free CMA counts not"
    );
}

#[test]
fn shortcut_scales_with_a_large_node() {
    let mut large = far_node(4 * GIB_PAGES + 800);
    large[2].present = 64 * GIB_PAGES;
    assert!(!read(&zoneinfo(&[&large], true, 1)).free_space_shortcut(0));
    large[2].free += 1;
    assert!(read(&zoneinfo(&[&large], true, 1)).free_space_shortcut(0));
}

#[test]
fn refresh_sees_new_values_and_a_grown_file() {
    let tree = FakeTree::new();
    tree.proc("zoneinfo", &zoneinfo(&[&far_node(599)], true, 1));
    let mut watermarks = Watermarks::open(&tree.root).unwrap();
    // 400 CPUs: far beyond the first buffer.
    tree.proc(
        "zoneinfo",
        &zoneinfo(&[&far_node(700), &far_node(601)], true, 400),
    );
    watermarks.refresh().unwrap();
    assert_eq!(
        (
            watermarks.room_pages(0, None),
            watermarks.room_pages(1, None)
        ),
        (100, 1)
    );
}

#[test]
fn damage_is_an_error() {
    for text in [
        "",
        "nothing here\n",
        "Node 0, zone   Normal\n  pages free     x\n",
        "Node 0, zone   Normal\n  pages free     18446744073709551615\n",
    ] {
        let tree = FakeTree::new();
        tree.proc("zoneinfo", text);
        let error = Watermarks::open(&tree.root).unwrap_err().to_string();
        assert!(error.contains("zoneinfo"), "{error}");
    }
}

#[test]
fn a_damaged_list_holds_nothing() {
    let tree = FakeTree::new();
    let text = zoneinfo(&[&far_node(700)], true, 2);
    tree.proc("zoneinfo", &text.replace("count:    0", "count:    x"));
    let watermarks = Watermarks::open(&tree.root).unwrap();
    assert_eq!(watermarks.room_pages(0, Some(1)), 100);
}

/// Room of nodes 0 and 1, of which the second has two zones; read again at a time in ns.
fn look_at(watermarks: &mut Watermarks, now_ns: u64) -> [u64; 2] {
    [0, 1].map(|nid| {
        watermarks
            .refresh_node(nid, now_ns)
            .expect("readable zones");
        watermarks.room_pages(nid, None)
    })
}

#[test]
fn between_two_readings_free_pages_tell_the_room() {
    let tree = FakeTree::new();
    let mut two_zones = far_node(500);
    two_zones[1] = Zone {
        name: "DMA32",
        free: 650,
        ..far_node(0)[2]
    };
    let free_pages = |nid: u32, pages: u64| {
        let path = format!("devices/system/node/node{nid}/meminfo");
        let lines = format!("MemTotal: 9 kB\nNode {nid} MemFree: {} kB\n", pages * 4);
        tree.sys(&path, &lines);
    };
    tree.proc(
        "zoneinfo",
        &zoneinfo(&[&far_node(700), &two_zones], true, 1),
    );
    let mut watermarks = Watermarks::open(&tree.root).unwrap();
    assert_eq!(look_at(&mut watermarks, 0), [100, 50], "read in full");
    // What the zones say from now on is not read.
    tree.proc("zoneinfo", &zoneinfo(&[&far_node(4000)], true, 1));
    free_pages(0, 640);
    free_pages(1, 1150 + 90);
    assert_eq!(
        look_at(&mut watermarks, 1),
        [40, 50],
        "100 are missing first"
    );
    free_pages(0, 760);
    free_pages(1, 1150 + 130);
    assert_eq!(look_at(&mut watermarks, 1), [160, 80]);
    free_pages(1, 1150 - 20);
    assert_eq!(
        look_at(&mut watermarks, 1)[1],
        30,
        "gone from above the mark"
    );
    assert_eq!(
        look_at(&mut watermarks, 2_000_000_000),
        [3400, 0],
        "it is time"
    );
}

#[test]
fn where_free_pages_cannot_be_read_all_is() {
    let tree = FakeTree::new();
    tree.proc("zoneinfo", &zoneinfo(&[&far_node(700)], true, 1));
    let mut watermarks = Watermarks::open(&tree.root).unwrap();
    assert_eq!(look_at(&mut watermarks, 0)[0], 100);
    tree.proc("zoneinfo", &zoneinfo(&[&far_node(800)], true, 1));
    assert_eq!(look_at(&mut watermarks, 1)[0], 200);
}

#[test]
fn this_machine() {
    let mut watermarks = Watermarks::open(&SysRoot::default()).unwrap();
    watermarks.refresh().unwrap();
    assert!(
        watermarks
            .zones()
            .iter()
            .any(|zone| zone.managed_pages > 0 && zone.high_pages > 0)
    );
}
