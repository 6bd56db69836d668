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
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "hotness_place.h"

#define NSEC_PER_MSEC 1000000ull

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
	__uint(value_size, HOTNESS_CHUNK_BYTES);
} records SEC(".maps");

/* Section words (see hotness.h), 512 an element. Mmapable for the same reason. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__uint(value_size, HOTNESS_CHUNK_BYTES);
} sections SEC(".maps");

/*
 * Written before load: constants for the verifier, which drops what they rule out. One variable,
 * so that it is all of .rodata and user space (sources/src/kernel/attach.rs) needs no generated
 * layout.
 */
struct pghot_shape {
	__u32 precision;
	__u32 nr_ranges;
	struct hotness_range ranges[HOTNESS_RANGES_MAX];
};

_Static_assert(sizeof(struct pghot_shape) == 8 + 64 * 24, "all of .rodata");

const volatile struct pghot_shape shape;

/*
 * Written by the daemon while programs run; all of .bss. A report that reads half of an update
 * applies the new threshold with the old window once; nothing worse can come of it.
 */
struct hotness_rule rule;

static __always_inline __s64 record_index(__u64 pfn)
{
	return hotness_index(shape.ranges, shape.nr_ranges, pfn);
}

/* The word that holds the record of this index, and its first bit there; NULL if there is none. */
static __always_inline __u32 *record_word(__s64 index, __u32 *shift)
{
	struct hotness_place p = hotness_place(index, shape.precision);
	__u32 chunk = p.word / HOTNESS_CHUNK_BYTES;
	void *elem = index < 0 ? NULL : bpf_map_lookup_elem(&records, &chunk);

	*shift = p.shift;
	return elem ? elem + (p.word & (HOTNESS_CHUNK_BYTES - 4)) : NULL;
}

/* Whether a page has a record: those of the lower tier do. */
static __always_inline bool is_tracked(__u64 pfn)
{
	return record_index(pfn) >= 0;
}

/* The node of this CPU. A record of one byte has no room for it, so it is not asked for either. */
static __always_inline __u32 accessing_nid(void)
{
	return shape.precision ? bpf_get_numa_node_id() : 0;
}

/* Reports an access of `pfn`, of a large folio its head, by a CPU of `nid`. */
static __always_inline enum hotness_result report(__u64 pfn, __u32 nid, __u64 now_ms,
						  const struct hotness_rule *by)
{
	__s64 index = record_index(pfn);
	__u64 section = hotness_place(index, shape.precision).section;
	__u32 shift, chunk = section / HOTNESS_CHUNK_BYTES;
	__u32 *word = record_word(index, &shift);
	void *elem;

	if (!word)
		return HOTNESS_NOT_TRACKED;
	elem = bpf_map_lookup_elem(&sections, &chunk);
	if (!elem)
		return HOTNESS_NOT_TRACKED;

	__u64 *mark = elem + (section & (HOTNESS_CHUNK_BYTES - 8));

	if (shape.precision)
		return hotness_report(word, shift, mark, now_ms, nid, by, 1);
	return hotness_report(word, shift, mark, now_ms, nid, by, 0);
}

/*
 * Whether the page was reported at `since_ms` or later, to the resolution of its record: for a
 * source that meets pages in rounds, and more than once.
 */
static __always_inline bool is_reported_since(__u64 pfn, __u64 since_ms, __u64 now_ms)
{
	__u32 shift;
	__u32 *word = record_word(record_index(pfn), &shift);

	if (!word)
		return false;

	struct hotness_layout l = shape.precision ? hotness_layout(1) : hotness_layout(0);
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
 * Ready times of samples (hotness_is_sampled), for the ready-to-moved latency in `status`.
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
	if (!hotness_is_sampled(pfn))
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

/* The beginning of each source's `stats`, which are numbers of 64 bits all. */
struct source_counters {
	__u64 recorded;
	__u64 recorded_pages;
	__u64 became_ready;
	__u64 lost;
	__u64 not_tracked;
	__u64 unreadable;
};

/* Reports an access of a folio of so many pages, at `when_ms`, and counts what became of it. */
static __always_inline enum hotness_result report_folio(struct source_counters *s, __u64 head,
							__u64 pages, __u32 nid, __u64 when_ms,
							const struct hotness_rule *by)
{
	enum hotness_result result = report(head, nid, when_ms, by);

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
	case HOTNESS_NOT_TRACKED:
		s->not_tracked++;
	}
	return result;
}

#endif
