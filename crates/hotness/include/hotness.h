/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The hotness record: its layout, the rule that a report applies, and ageing.
 *
 * This header is the only place where the rule exists. The BPF programs of the sources include it
 * and run it on an application's thread; the Rust crate compiles it through src/hotness.c for the
 * migrator, the simulator and the tests. It declares no kernel type and calls no function.
 *
 * A record is one byte (default) or one 32-bit word (precision) per lower-tier page:
 *
 *   default    ready:1 [7]   time:5  [2..6]    freq:2 [0..1]
 *   precision  ready:1 [31]  unused:4 [27..30] time:14 [13..26]  freq:3 [10..12]  nid:10 [0..9]
 *
 * Zero means: not accessed within the window. `freq` counts accesses of the current window and
 * saturates. `time` is the last access in units of 256 ms (default) or 2 ms (precision), modulo the
 * width of the field: 8.2 s or 32.8 s. `ready` is set when freq reaches the threshold.
 *
 * A time modulo 8.2 s lies about old accesses, unless old records are cleared before they wrap.
 * So each section of 32768 pages has one 64-bit word that tells when the section was last aged. A
 * report trusts a record only while that is recent enough; if the migrator is late, or stopped, a
 * report starts a new window instead of guessing. That is why two accesses further apart than the
 * window never make a page ready, whatever else happens.
 *
 * Section word:  aged_ms:61 [3..63]  sweeping:1 [2]  hot:1 [1]  live:1 [0]
 *
 *   live      some record of the section may be non-zero: it must be aged
 *   hot       some record of the section may be ready: the migrator looks here
 *   sweeping  the migrator is reading the section now; nobody else may reset aged_ms
 *
 * All times are CLOCK_MONOTONIC in milliseconds, never jiffies: the rule is the same at any HZ.
 */
#ifndef PGHOT_HOTNESS_H
#define PGHOT_HOTNESS_H

#include <linux/types.h>

#define HOTNESS_FN static inline __attribute__((always_inline, unused))
/* Off the fast path, and kept out of its registers. */
#ifdef __bpf__
#define HOTNESS_SLOW static __attribute__((noinline, unused))
#else
#define HOTNESS_SLOW static __attribute__((noinline, cold, unused))
#endif

#define HOTNESS_SECTION_SHIFT	15
#define HOTNESS_SECTION_PAGES	(1u << HOTNESS_SECTION_SHIFT)
#define HOTNESS_NID_MAX		1023u

#define HOTNESS_LIVE		1ull
#define HOTNESS_HOT		2ull
#define HOTNESS_SWEEPING	4ull
#define HOTNESS_AGED_SHIFT	3

/*
 * A report may be this late or out of order and still count as "now": CPUs race between reading
 * the clock and writing the record, and samples wait in rings.
 */
#define HOTNESS_LATE_MS		256u

/*
 * How often a report retries when other CPUs keep winning the compare-and-swap of its word. Each
 * failed try means that another report succeeded; BPF needs a bound, and 64 lost races in a row
 * were never seen. The caller counts HOTNESS_LOST.
 */
#define HOTNESS_TRIES		64

struct hotness_layout {
	__u32 unit_shift;	/* log2 of the time unit in ms */
	__u32 time_shift;
	__u32 time_mask;
	__u32 freq_shift;
	__u32 freq_max;
	__u32 nid_mask;
	__u32 ready;
	__u32 mask;		/* the whole record within its 32-bit word */
};

/* `precision` is a constant at every caller, so the compiler folds the layout away. */
HOTNESS_FN struct hotness_layout hotness_layout(int precision)
{
	struct hotness_layout u8 = {
		.unit_shift = 8, .time_shift = 2, .time_mask = 0x1f,
		.freq_shift = 0, .freq_max = 3, .nid_mask = 0, .ready = 1u << 7, .mask = 0xff,
	};
	struct hotness_layout u32 = {
		.unit_shift = 1, .time_shift = 13, .time_mask = 0x3fff,
		.freq_shift = 10, .freq_max = 7, .nid_mask = HOTNESS_NID_MAX,
		.ready = 1u << 31, .mask = 0xffffffffu,
	};

	return precision ? u32 : u8;
}

/* What a report needs to know; derived from the tunables by hotness_rule_init(). */
struct hotness_rule {
	__u32 freq_threshold;	/* 1..freq_max accesses within the window make a page ready */
	__s32 span_units;	/* largest lateness + age that is surely inside the window */
	__s64 trust_ms;		/* a section aged longer ago than this may hold wrapped times */
};

/*
 * Units are floors, so a difference of d units means that less than d + 1 units have passed: the
 * largest d that is surely inside the window is window / unit - 1. Right after ageing no record is
 * older than the window; it turns ambiguous `wrap` later, less what a late report may be off.
 */
HOTNESS_FN void hotness_rule_init(struct hotness_rule *rule, int precision, __u32 freq_threshold,
				  __u32 window_ms)
{
	struct hotness_layout l = hotness_layout(precision);

	rule->freq_threshold = freq_threshold;
	rule->span_units = (__s32)((window_ms + HOTNESS_LATE_MS) >> l.unit_shift) - 1;
	rule->trust_ms = ((__s64)l.time_mask << l.unit_shift) - HOTNESS_LATE_MS - window_ms;
}

HOTNESS_FN __u32 hotness_freq(__u32 rec, int precision)
{
	struct hotness_layout l = hotness_layout(precision);

	return (rec >> l.freq_shift) & l.freq_max;
}

/*
 * Time units since the record's last access, counted from HOTNESS_LATE_MS before it, so that an
 * access that lies slightly ahead of now is not taken for one that lies a whole wrap behind.
 */
HOTNESS_FN __u32 hotness_late_age_units(__u32 rec, __u64 now_ms, int precision)
{
	struct hotness_layout l = hotness_layout(precision);

	return ((__u32)((now_ms + HOTNESS_LATE_MS) >> l.unit_shift) - (rec >> l.time_shift)) &
	       l.time_mask;
}

HOTNESS_FN int hotness_trusted(__u64 section, __u64 now_ms, const struct hotness_rule *rule)
{
	return (__s64)(now_ms - (section >> HOTNESS_AGED_SHIFT)) <= rule->trust_ms;
}

/* The record's last access lies surely within the window. */
HOTNESS_FN int hotness_fresh(__u32 rec, __u64 now_ms, int trusted,
			     const struct hotness_rule *rule, int precision)
{
	__s32 span = trusted ? rule->span_units : -1;

	return (__s32)hotness_late_age_units(rec, now_ms, precision) <= span;
}

/* The update rule: the record after an access by a CPU of `nid` at `now_ms`. */
HOTNESS_FN __u32 hotness_next(__u32 rec, __u64 now_ms, __u32 nid, int trusted,
			      const struct hotness_rule *rule, int precision)
{
	struct hotness_layout l = hotness_layout(precision);
	__u32 time = (__u32)(now_ms >> l.unit_shift) & l.time_mask;
	__u32 freq = hotness_freq(rec, precision);

	freq = hotness_fresh(rec, now_ms, trusted, rule, precision) ? freq : 0;
	freq += freq < l.freq_max;
	return freq << l.freq_shift | time << l.time_shift | (nid & l.nid_mask) |
	       (freq >= rule->freq_threshold ? l.ready : 0);
}

#define HOTNESS_RECORDED	1	/* the access is in the record */
#define HOTNESS_BECAME_READY	2	/* and made the page ready, which it was not before */
#define HOTNESS_LOST		4	/* HOTNESS_TRIES lost races: not recorded */

/*
 * Mark a section before its record changes, so that no record is ever non-zero in a section that
 * the migrator believes idle. The first mark of an idle section also says "aged now": all its
 * records are zero, which is as aged as can be.
 */
HOTNESS_SLOW void hotness_mark(__u64 *section, __u64 need, __u64 now_ms)
{
	for (int i = 0; i < HOTNESS_TRIES; i++) {
		__u64 old = *(volatile __u64 *)section;
		__u64 new = old | need;

		if (new == old)
			return;
		if (!(old & (HOTNESS_LIVE | HOTNESS_SWEEPING)))
			new = need | HOTNESS_LIVE | now_ms << HOTNESS_AGED_SHIFT;
		if (__sync_val_compare_and_swap(section, old, new) == old)
			return;
	}
}

/*
 * Report one access. `word` is the aligned 32-bit word that holds the record, `shift` the record's
 * first bit in it (0 in precision mode). BPF compares and swaps 32 bits at least, so a default-mode
 * record shares its word with three neighbours; only the record's own bits change, and a neighbour's
 * report in between makes this one try again.
 *
 * The section is marked before the record is written (see hotness_mark) and looked at once more
 * after: a sweep that began in between cleared the mark and may have passed the record by.
 */
HOTNESS_FN int hotness_report(__u32 *word, __u32 shift, __u64 *section, __u64 now_ms, __u32 nid,
			      const struct hotness_rule *rule, int precision)
{
	struct hotness_layout l = hotness_layout(precision);
	__u64 mark = *(volatile __u64 *)section;

	if (__builtin_expect(!(mark & HOTNESS_LIVE), 0)) {
		hotness_mark(section, HOTNESS_LIVE, now_ms);
		mark = *(volatile __u64 *)section;
	}

	int trusted = hotness_trusted(mark, now_ms, rule);

	for (int i = 0; i < HOTNESS_TRIES; i++) {
		__u32 old = *(volatile __u32 *)word;
		__u32 rec = (old >> shift) & l.mask;
		__u32 next = hotness_next(rec, now_ms, nid, trusted, rule, precision);
		__u64 need = next & l.ready ? HOTNESS_LIVE | HOTNESS_HOT : HOTNESS_LIVE;
		__u32 new = old ^ (rec ^ next) << shift;

		/* A page that is accessed all the time costs its neighbours no cache line. */
		if (new != old && !__sync_bool_compare_and_swap(word, old, new))
			continue;
		if (__builtin_expect((*(volatile __u64 *)section & need) != need, 0))
			hotness_mark(section, need, now_ms);
		return next & ~rec & l.ready ? HOTNESS_RECORDED | HOTNESS_BECAME_READY
					     : HOTNESS_RECORDED;
	}
	return HOTNESS_LOST;
}

/* Ageing: what is left of a record at `now_ms`. Untrusted sections are cleared whole. */
HOTNESS_FN __u32 hotness_aged(__u32 rec, __u64 now_ms, int trusted,
			      const struct hotness_rule *rule, int precision)
{
	return hotness_fresh(rec, now_ms, trusted, rule, precision) ? rec : 0;
}

#endif
