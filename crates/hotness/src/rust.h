/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The structures of functions that only Rust calls (hotness.c). */
#ifndef PGHOT_HOTNESS_RUST_H
#define PGHOT_HOTNESS_RUST_H

#include "hint_faults.h"
#include "hotness_place.h"

/* A range of pages, whose first record is the lowest of `words`. */
struct pghot_range_view {
	__u8 *words;
	__u64 *sections;
	__u64 start_pfn;
	__u64 pages;
};

struct pghot_access {
	__u64 pfn;
	__u32 nid;
};

struct pghot_counts {
	__u64 became_ready;
	__u64 lost;
	/* The page of the last access is a sample and became ready by it. */
	__u64 ends_with_sample;
};

_Static_assert(sizeof(struct hotness_rule) == 48, "constants of BPF programs");
_Static_assert(HOTNESS_RECORDED == 0 && HOTNESS_BECAME_READY == 1, "a bit of the record");

#endif
