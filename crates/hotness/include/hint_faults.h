/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What one hint fault tells: for the BPF program that sees hint faults, and for its model.
 *
 * A page that is touched soon after the kernel's scan has marked it is touched often. The scan may
 * come back to it only when the window is over, so such a fault makes the page ready at once. How
 * soon is soon enough depends on what the page would displace. While there is room it may take
 * longer than later, when pages change places: the soonest fill their records, and go first.
 */
#ifndef PGHOT_HINT_FAULTS_H
#define PGHOT_HINT_FAULTS_H

#include "hotness.h"

/* Which faults are quick, and the rules for those. */
struct quick_faults {
	/* One access fills the record. */
	struct hotness_rule filling;
	/* One access makes the page ready, and leaves the record less than full. */
	struct hotness_rule sufficing;
	/* The first is for those that come so soon after the mark, or in a burst. */
	__u32 soon_ms;
	/* The second for those that come so soon, at least as long; 0: none are quick. */
	__u32 within_ms;
	/* Whether faults in a burst are quick too. */
	__u32 in_bursts;
	/* Whether others are left to who reads accessed bits. */
	__u32 only_quick;
};

_Static_assert(sizeof(struct quick_faults) == 112, "written whole, while programs run");

/*
 * A burst is so many faults of a block within this time, and those that follow. The pages of a
 * block that comes to so many are touched some three times a second. The faults before a burst is
 * noticed count once each, and in a dense set touched in any order four of five are in a row: so it
 * takes few, within a short time.
 */
#define BURST_FAULTS 24
#define BURST_MS     16

/* 2 MiB of a process's memory are neighbours. */
#define BLOCK_PAGES_SHIFT 9
#define BLOCK_PAGES       (1u << BLOCK_PAGES_SHIFT)
#define BLOCK_WORDS       (BLOCK_PAGES / 64)

/* The newest faults of a block. */
struct fault_block {
	__u64 key;
	__u32 start_ms;
	/* Without those that come in a row. */
	__u32 faults;
	/* Pages that faulted, a bit each. */
	__u64 faulted[BLOCK_WORDS];
};

/* Blocks in which faults came lately, by a hash of their key: who comes later takes the place. */
#define FAULT_BLOCKS_SHIFT 12
#define FAULT_BLOCKS       (1u << FAULT_BLOCKS_SHIFT)

/* The block of a page: its address / 4096 in the process `tgid`. */
HOTNESS_FN __u64 fault_block_key(__u32 tgid, __u64 page)
{
	return (__u64)tgid << 32 | page >> BLOCK_PAGES_SHIFT;
}

/* Among 2^shift places, by a hash. */
HOTNESS_FN __u32 hashed_place(__u64 key, __u32 shift)
{
	return key * 0x9e3779b97f4a7c15ull >> (64 - shift);
}

HOTNESS_FN __u32 fault_block_place(__u64 key)
{
	return hashed_place(key, FAULT_BLOCKS_SHIFT);
}

/* Of the page before or after; those beyond the block's ends wrap. */
HOTNESS_FN int has_faulted(const struct fault_block *b, __u32 page)
{
	page &= BLOCK_PAGES - 1;
	return b->faulted[page / 64 & (BLOCK_WORDS - 1)] >> (page % 64) & 1;
}

/*
 * Notes a fault, and tells whether so many came in its neighbourhood within a short time that it is
 * in use. Faults in a row do not count: somebody passes over memory once.
 */
HOTNESS_FN int is_in_burst(struct fault_block *b, __u64 key, __u32 page, __u32 now_ms)
{
	int is_in_row;

	if (b->key != key || now_ms - b->start_ms >= BURST_MS) {
		b->key = key;
		b->start_ms = now_ms;
		b->faults = 0;
		for (__u32 i = 0; i < BLOCK_WORDS; i++)
			b->faulted[i] = 0;
	}
	page &= BLOCK_PAGES - 1;
	is_in_row = has_faulted(b, page - 1) || has_faulted(b, page - 2) ||
		    has_faulted(b, page + 1) || has_faulted(b, page + 2);
	b->faulted[page / 64 & (BLOCK_WORDS - 1)] |= 1ull << page % 64;
	if (!is_in_row)
		b->faults++;
	return b->faults > BURST_FAULTS;
}

/*
 * To move a folio of 2^order pages takes as long as to move so many, and it is touched as often as
 * all of them together. So what tells how hot it is is the time since the mark for each of its
 * pages, which is so many times as long.
 */
HOTNESS_FN __u32 page_since_mark_ms(__u64 since_mark_us, __u32 order)
{
	__u64 ms = (since_mark_us << order) / 1000;

	return ms < 0xffffffffu ? ms : 0xffffffffu;
}

enum hint_fault {
	HINT_FAULT_COUNTED,  /* one access, like others */
	HINT_FAULT_LEFT,     /* the same, but somebody else sees it too */
	HINT_FAULT_SOON,     /* quick: soon after the mark */
	HINT_FAULT_EARLY,    /* quick: not quite as soon */
	HINT_FAULT_IN_BURST, /* quick: later, but in a burst */
};

/*
 * `b` is at the place of the page's block; it is needed if faults in a burst are quick.
 *
 * A large folio is soon or it is counted: nearly all of them are touched between two agings, so
 * that of those that are up the colder ones cannot be told, and what goes up first stays.
 */
HOTNESS_FN enum hint_fault hint_fault_kind(const volatile struct quick_faults *quick,
					   struct fault_block *b, __u64 key, __u32 page,
					   __u32 order, __u32 since_mark_ms, __u32 now_ms)
{
	__u32 within_ms = quick->within_ms;

	if (order && within_ms > quick->soon_ms)
		within_ms = quick->soon_ms;
	if (since_mark_ms < within_ms)
		return since_mark_ms < quick->soon_ms ? HINT_FAULT_SOON : HINT_FAULT_EARLY;
	if (quick->in_bursts && b && is_in_burst(b, key, page, now_ms))
		return HINT_FAULT_IN_BURST;
	return quick->only_quick ? HINT_FAULT_LEFT : HINT_FAULT_COUNTED;
}

/* Classes by page_since_mark_ms(): below 8 ms, 16 ms, and so on; the last is for all later ones. */
#define FAULT_CLASSES         9
#define FAULT_NARROWEST_SHIFT 3

/*
 * Of a burst that time tells when memory was marked before it came into use, not how often it is
 * touched. So these faults are beyond the classes that exchanges compare, unless quick_fault_ms
 * is above 256.
 */
#define FAULT_CLASS_IN_BURST (FAULT_CLASSES - 2)

HOTNESS_FN __u32 hint_fault_class(enum hint_fault kind, __u32 since_mark_ms)
{
	__u32 first = kind == HINT_FAULT_IN_BURST ? FAULT_CLASS_IN_BURST : 0;

	for (__u32 i = 0; i < FAULT_CLASSES - 1; i++)
		if (i >= first && !(since_mark_ms >> (FAULT_NARROWEST_SHIFT + i)))
			return i;
	return FAULT_CLASSES - 1;
}

#endif
