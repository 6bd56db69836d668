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
