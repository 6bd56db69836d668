// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Gives Rust the rule of hotness.h: each inline function once per record format, so that the
// compiler folds the layout into constants just as it does in a BPF program.

#include "hotness.h"

int pghot_report_default(__u32 *word, __u32 shift, __u64 *section, __u64 now_ms, __u32 nid,
			 const struct hotness_rule *rule)
{
	return hotness_report(word, shift, section, now_ms, nid, rule, 0);
}

int pghot_report_precision(__u32 *word, __u32 shift, __u64 *section, __u64 now_ms, __u32 nid,
			   const struct hotness_rule *rule)
{
	return hotness_report(word, shift, section, now_ms, nid, rule, 1);
}

/* Reports into one range of pages, whose first record is the lowest of `words`. */
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
};

/*
 * Stops at the first access outside the range and returns how many came before it. A range begins
 * with a section, so offsets in it find words and sections alike.
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
		__u64 byte = precision ? offset * 4 : offset & ~3ull;
		__u32 shift = precision ? 0 : (offset & 3) * 8;
		int result;

		if (__builtin_expect(offset >= pages, 0))
			break;
		result = hotness_report((__u32 *)(words + byte), shift,
					sections + (offset >> HOTNESS_SECTION_SHIFT), now_ms,
					accesses[i].nid, rule, precision);
		if (__builtin_expect(result == HOTNESS_LOST, 0))
			counts->lost++;
		else
			became_ready += result;
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
