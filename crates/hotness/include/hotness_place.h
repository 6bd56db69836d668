/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Where the record of a page lies, and which pages are samples: for BPF programs and user space.
 *
 * The lower tier's ranges of page frames are numbered without holes. Record and section word of a
 * page are found by its number, each in an array of its own.
 */
#ifndef PGHOT_HOTNESS_PLACE_H
#define PGHOT_HOTNESS_PLACE_H

#include "hotness.h"

#define HOTNESS_RANGES_MAX 64

/* Records and section words lie in elements of BPF arrays of so many bytes. */
#define HOTNESS_CHUNK_BYTES 4096

struct hotness_range {
	__u64 start_pfn;
	__u64 end_pfn;     /* exclusive */
	__u64 first_index; /* record index of start_pfn */
};

_Static_assert(sizeof(struct hotness_range) == 24, "in constants and maps of BPF programs");

/* The index of a page's record, or -1. */
HOTNESS_FN __s64 hotness_index(const volatile struct hotness_range *ranges, __u32 nr, __u64 pfn)
{
	for (__u32 i = 0; i < HOTNESS_RANGES_MAX && i < nr; i++) {
		const volatile struct hotness_range *r = &ranges[i];

		if (pfn >= r->start_pfn && pfn < r->end_pfn)
			return r->first_index + (pfn - r->start_pfn);
	}
	return -1;
}

/* In bytes from the beginning of each array. */
struct hotness_place {
	__u64 word;    /* the aligned 32-bit word around the record */
	__u64 section; /* the section's word */
	__u64 shift;   /* the record's first bit in its word */
};

HOTNESS_FN struct hotness_place hotness_place(__u64 index, int precision)
{
	struct hotness_place place = {
		.word = precision ? index << 2 : index & ~3ull,
		.section = index >> HOTNESS_SECTION_SHIFT << 3,
		.shift = precision ? 0 : (index & 3) * 8,
	};

	return place;
}

/*
 * One page in 64, always the same ones, whoever sees it. Fibonacci hashing: its top 6 bits spread
 * neighbours evenly over 64 classes.
 */
HOTNESS_FN int hotness_is_sampled(__u64 pfn)
{
	return !(pfn * 0x9e3779b97f4a7c15ull >> 58);
}

#endif
