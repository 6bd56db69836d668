// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Gives Rust the rule of hotness.h: each inline function once per record format, so that the
// compiler folds the layout into constants just as it does in a BPF program.

#include "rust.h"

/* Reports an access of the page that has record `index` of these arrays. */
int pghot_report(__u8 *words, __u64 *sections, __u64 index, __u64 now_ms, __u32 nid,
		 const struct hotness_rule *rule, int precision)
{
	/* Not at one place for both formats, so that each has its own as a constant. */
	if (precision) {
		struct hotness_place p = hotness_place(index, 1);

		return hotness_report((__u32 *)(words + p.word), p.shift, sections + p.section / 8,
				      now_ms, nid, rule, 1);
	}
	struct hotness_place p = hotness_place(index, 0);

	return hotness_report((__u32 *)(words + p.word), p.shift, sections + p.section / 8, now_ms,
			      nid, rule, 0);
}

struct hotness_place pghot_place(__u64 index, int precision)
{
	return hotness_place(index, precision);
}

__s64 pghot_index(const struct hotness_range *ranges, __u32 nr, __u64 pfn)
{
	return hotness_index(ranges, nr, pfn);
}

int pghot_is_sampled(__u64 pfn)
{
	return hotness_is_sampled(pfn);
}

/*
 * Stops before the first access outside the range, and after one that made a sample ready. Returns
 * how many were reported. A range begins with a section, so offsets in it find words and sections
 * alike.
 */
static inline __attribute__((always_inline)) __u64
report_bulk(const struct pghot_access *accesses, __u64 n, const struct pghot_range_view *view,
	    __u64 now_ms, const struct hotness_rule *rule, struct pghot_counts *counts,
	    int precision)
{
	/* Copies, or each compare-and-swap would have them read again. */
	__u8 *words = view->words;
	__u64 *sections = view->sections;
	__u64 start_pfn = view->start_pfn, pages = view->pages;
	__u64 became_ready = 0, i;

	for (i = 0; i < n; i++) {
		__u64 offset = accesses[i].pfn - start_pfn;
		struct hotness_place p = hotness_place(offset, precision);
		int result;

		if (__builtin_expect(offset >= pages, 0))
			break;
		result =
			hotness_report((__u32 *)(words + p.word), p.shift, sections + p.section / 8,
				       now_ms, accesses[i].nid, rule, precision);
		if (__builtin_expect(result == HOTNESS_LOST, 0)) {
			counts->lost++;
			continue;
		}
		became_ready += result;
		if (result == HOTNESS_BECAME_READY && hotness_is_sampled(accesses[i].pfn)) {
			counts->ends_with_sample = 1;
			i++;
			break;
		}
	}
	counts->became_ready += became_ready;
	return i;
}

__u64 pghot_report_bulk(const struct pghot_access *accesses, __u64 n,
			const struct pghot_range_view *view, __u64 now_ms,
			const struct hotness_rule *rule, struct pghot_counts *counts, int precision)
{
	/* Two loops, each with its format as a constant. */
	if (precision)
		return report_bulk(accesses, n, view, now_ms, rule, counts, 1);
	return report_bulk(accesses, n, view, now_ms, rule, counts, 0);
}

__u32 pghot_aged(__u32 rec, __u64 now_ms, int trusted, const struct hotness_rule *rule,
		 int precision)
{
	return hotness_aged(rec, now_ms, trusted, rule, precision);
}

__u32 pghot_late_age(__u32 rec, __u64 now_ms, int precision)
{
	return hotness_late_age(rec, now_ms, precision);
}

int pghot_trusted(__u64 section, __u64 now_ms)
{
	return hotness_trusted(section, now_ms);
}

void pghot_rule_init(struct hotness_rule *rule, int precision, __u32 freq_threshold,
		     __u32 window_ms)
{
	hotness_rule_init(rule, precision, freq_threshold, window_ms);
}

struct hotness_layout pghot_layout(int precision)
{
	return hotness_layout(precision);
}

/* See hint_fault_kind(); `page` is numbered in one process, and `blocks` has FAULT_BLOCKS. */
enum hint_fault pghot_hint_fault_kind(const struct quick_faults *quick, struct fault_block *blocks,
				      __u64 page, __u32 order, __u32 since_mark_ms, __u32 now_ms)
{
	__u64 key = fault_block_key(0, page);

	return hint_fault_kind(quick, &blocks[fault_block_place(key)], key, page, order,
			       since_mark_ms, now_ms);
}

__u32 pghot_page_since_mark_ms(__u64 since_mark_us, __u32 order)
{
	return page_since_mark_ms(since_mark_us, order);
}

__u32 pghot_hint_fault_class(enum hint_fault kind, __u32 since_mark_ms)
{
	return hint_fault_class(kind, since_mark_ms);
}
