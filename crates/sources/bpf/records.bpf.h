/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the BPF programs of all sources find the record of a page, and how they report into it.
 *
 * The two maps are created by the daemon (records.rs) and shared by all BPF objects, so one access
 * seen by two sources lands in one record.
 */
#ifndef PGHOT_RECORDS_BPF_H
#define PGHOT_RECORDS_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "hotness.h"

#define PGHOT_CHUNK_BYTES 4096
#define PGHOT_RANGES_MAX  64
#define NSEC_PER_MSEC     1000000ull

/*
 * Records of the lower tier only, without holes, 4096 bytes an element. An array and not an arena:
 * no measured gain of the latter, and it needs clang 19 and kernel 6.9. Mmapable (since 5.5), so
 * that the migrator reads and clears records without a system call. The loader sets max_entries.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, PGHOT_CHUNK_BYTES);
} records SEC(".maps");

/* Section words (see hotness.h), 512 an element. Mmapable for the same reason. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, PGHOT_CHUNK_BYTES);
} sections SEC(".maps");

struct pghot_range {
	__u64 start_pfn;
	__u64 end_pfn;     /* exclusive */
	__u64 first_index; /* record index of start_pfn */
};

/*
 * Written before load: constants for the verifier, which drops what they rule out. One variable,
 * so that it is all of .rodata and user space (sources/src/attach.rs) needs no generated layout.
 */
struct pghot_shape {
	__u32 precision;
	__u32 nr_ranges;
	struct pghot_range ranges[PGHOT_RANGES_MAX];
};

const volatile struct pghot_shape shape;

/*
 * Written by the daemon while programs run; all of .bss. A report that reads half of an update
 * applies the new threshold with the old window once; nothing worse can come of it.
 */
struct hotness_rule rule;

#define PGHOT_NOT_TRACKED 3 /* beside the HOTNESS_* results */

static __always_inline __s64 record_index(__u64 pfn)
{
	for (__u32 i = 0; i < PGHOT_RANGES_MAX && i < shape.nr_ranges; i++) {
		const volatile struct pghot_range *r = &shape.ranges[i];

		if (pfn >= r->start_pfn && pfn < r->end_pfn)
			return r->first_index + (pfn - r->start_pfn);
	}
	return -1;
}

/* Reports an access of `pfn`, of a large folio its head, by a CPU of `nid`. */
static __always_inline int report(__u64 pfn, __u32 nid, __u64 now_ms, const struct hotness_rule *by)
{
	__s64 index = record_index(pfn);

	if (index < 0)
		return PGHOT_NOT_TRACKED;

	__u64 byte = shape.precision ? (__u64)index << 2 : (__u64)index;
	__u32 chunk = byte / PGHOT_CHUNK_BYTES;
	__u32 shift = shape.precision ? 0 : (byte & 3) * 8;
	void *elem = bpf_map_lookup_elem(&records, &chunk);

	if (!elem)
		return PGHOT_NOT_TRACKED;

	__u32 *word = elem + (byte & (PGHOT_CHUNK_BYTES - 4));
	__u64 section = (__u64)index >> HOTNESS_SECTION_SHIFT;

	chunk = section * 8 / PGHOT_CHUNK_BYTES;
	elem = bpf_map_lookup_elem(&sections, &chunk);
	if (!elem)
		return PGHOT_NOT_TRACKED;

	__u64 *mark = elem + (section * 8 & (PGHOT_CHUNK_BYTES - 8));

	if (shape.precision)
		return hotness_report(word, shift, mark, now_ms, nid, by, 1);
	return hotness_report(word, shift, mark, now_ms, nid, by, 0);
}

/*
 * Whether the page was reported at `since_ms` or later, to the resolution of its record: for a
 * source that meets pages in rounds, and more than once.
 */
static __always_inline int is_reported_since(__u64 pfn, __u64 since_ms, __u64 now_ms)
{
	__s64 index = record_index(pfn);

	if (index < 0)
		return 0;

	__u64 byte = shape.precision ? (__u64)index << 2 : (__u64)index;
	__u32 chunk = byte / PGHOT_CHUNK_BYTES;
	__u32 shift = shape.precision ? 0 : (byte & 3) * 8;
	void *elem = bpf_map_lookup_elem(&records, &chunk);

	if (!elem)
		return 0;

	struct hotness_layout l = shape.precision ? hotness_layout(1) : hotness_layout(0);
	__u32 *word = elem + (byte & (PGHOT_CHUNK_BYTES - 4));
	__u32 record = *(volatile __u32 *)word >> shift & l.mask;
	__u32 now = now_ms >> l.unit_shift;
	__u32 age = (now - (record >> l.time_shift)) & l.time_mask;

	return record && age <= now - (__u32)(since_ms >> l.unit_shift);
}

/* A page became ready. Sampled, so that latency is measured without a cost per page. */
struct pghot_ready_sample {
	__u64 pfn;
	__u64 when_ns; /* 0 while the slot is being written */
};

#define PGHOT_SAMPLES_MAX 4096

/*
 * Ready times of one page in 64, always the same ones, for the ready-to-moved latency in `status`.
 * A mapped array that wraps (since 5.5) and not a ring buffer, because the migrator looks at every
 * pass and reading it must not cost an idle daemon a system call. Element 0 counts the samples;
 * sample n lies in 1 + n % (PGHOT_SAMPLES_MAX - 1).
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PGHOT_SAMPLES_MAX);
	__type(key, __u32);
	__type(value, struct pghot_ready_sample);
} ready_samples SEC(".maps");

static __always_inline void sample_ready(__u64 pfn, __u64 now_ns)
{
	/* Fibonacci hashing: its top 6 bits spread neighbours evenly over 64 classes. */
	if ((pfn * 0x9e3779b97f4a7c15ull) >> 58)
		return;

	__u32 key = 0;
	struct pghot_ready_sample *count = bpf_map_lookup_elem(&ready_samples, &key);

	if (!count)
		return;
	key = 1 + __sync_fetch_and_add(&count->pfn, 1) % (PGHOT_SAMPLES_MAX - 1);

	struct pghot_ready_sample *sample = bpf_map_lookup_elem(&ready_samples, &key);

	if (!sample)
		return;
	sample->pfn = pfn;
	*(volatile __u64 *)&sample->when_ns = now_ns;
}

/* The first words of each source's `stats` (sources/src/attach.rs). */
struct source_counters {
	__u64 recorded;
	__u64 recorded_pages;
	__u64 became_ready;
	__u64 lost;
	__u64 not_tracked;
	__u64 unreadable;
};

/* Reports an access of a folio of so many pages, at `when_ms`, and counts what became of it. */
static __always_inline int report_folio(struct source_counters *s, __u64 head, __u64 pages,
					__u32 nid, __u64 when_ms, const struct hotness_rule *by)
{
	int result = report(head, nid, when_ms, by);

	switch (result) {
	case HOTNESS_BECAME_READY:
		s->became_ready++;
		sample_ready(head, bpf_ktime_get_ns());
		/* fall through */
	case HOTNESS_RECORDED:
		s->recorded++;
		s->recorded_pages += pages;
		break;
	case HOTNESS_LOST:
		s->lost++;
		break;
	default:
		s->not_tracked++;
	}
	return result;
}

#endif
