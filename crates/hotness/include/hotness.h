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
 * So each section of 32768 pages has one 64-bit word that tells until when the last ageing keeps
 * its times apart. A report trusts a record only until then; if the migrator is late, or stopped,
 * a report starts a new window instead of guessing. That is why two accesses further apart than
 * the window never make a page ready, whatever else happens.
 *
 * Section word:  until_ms:61 [3..63]  sweeping:1 [2]  hot:1 [1]  live:1 [0]
 *
 *   live      some record of the section may be non-zero: it must be aged
 *   hot       some record of the section may be ready: the migrator looks here
 *   sweeping  the migrator is reading the section now; nobody else may renew until_ms
 *   until_ms  records may be trusted up to this time; 0 in an idle section
 *
 * All times are CLOCK_MONOTONIC in milliseconds, never jiffies: the rule is the same at any HZ.
 */
#ifndef PGHOT_HOTNESS_H
#define PGHOT_HOTNESS_H

#include <linux/types.h>

#define HOTNESS_FN static inline __attribute__((always_inline, unused))
/* Off the fast path, and kept out of its registers. */
#ifdef __bpf__
#define HOTNESS_SLOW HOTNESS_FN /* a BPF function takes five arguments at most */
#else
#define HOTNESS_SLOW static __attribute__((noinline, cold, unused))
#endif

#define HOTNESS_SECTION_SHIFT 15
#define HOTNESS_SECTION_PAGES (1u << HOTNESS_SECTION_SHIFT)
#define HOTNESS_NID_MAX       1023u

#define HOTNESS_LIVE        1ull
#define HOTNESS_HOT         2ull
#define HOTNESS_SWEEPING    4ull
#define HOTNESS_UNTIL_SHIFT 3

/*
 * A report may be this late or out of order and still count as "now": CPUs race between reading
 * the clock and writing the record, and samples wait in rings.
 */
#define HOTNESS_LATE_MS 256u

/*
 * How often a report retries when other CPUs keep winning the compare-and-swap of its word. Each
 * failed try means that another report succeeded; BPF needs a bound, and 64 lost races in a row
 * were never seen. The caller counts HOTNESS_LOST.
 */
#define HOTNESS_TRIES 64

/*
 * The same for the section's word. It changes a few times per pass of the migrator at most (live,
 * hot, and the sweep's beginning and end), whereas reports of hot pages change records all the
 * time, so a mark that loses more often than this is not possible in practice. The bound is low
 * because a BPF verifier walks this loop once for each turn of the other: at 64 it took nine tenths
 * of the daemon's start.
 */
#define HOTNESS_MARK_TRIES 8

struct hotness_layout {
	__u32 unit_shift; /* log2 of the time unit in ms */
	__u32 time_shift;
	__u32 time_mask;
	__u32 freq_shift;
	__u32 freq_max;
	__u32 nid_mask;
	__u32 ready_shift;
	__u32 mask; /* the whole record within its 32-bit word */
};

/* `precision` is a constant at every caller, so the compiler folds the layout away. */
HOTNESS_FN struct hotness_layout hotness_layout(int precision)
{
	struct hotness_layout u8 = {
		.unit_shift = 8,
		.time_shift = 2,
		.time_mask = 0x1f,
		.freq_shift = 0,
		.freq_max = 3,
		.nid_mask = 0,
		.ready_shift = 7,
		.mask = 0xff,
	};
	struct hotness_layout u32 = {
		.unit_shift = 1,
		.time_shift = 13,
		.time_mask = 0x3fff,
		.freq_shift = 10,
		.freq_max = 7,
		.nid_mask = HOTNESS_NID_MAX,
		.ready_shift = 31,
		.mask = 0xffffffffu,
	};

	return precision ? u32 : u8;
}

/*
 * What a report needs to know; derived from the tunables by hotness_rule_init(). The counting is
 * worked out beforehand: `step[freq]` is the frequency field and the ready bit after one more
 * access, in their places.
 */
struct hotness_rule {
	__s64 trust_ms;       /* how long after its ageing a section holds no wrapped times */
	__u32 span;           /* largest lateness + age that is surely inside the window, as it
				   comes out of hotness_late_age() */
	__u32 freq_threshold; /* 1..freq_max accesses within the window make a page ready */
	__u32 step[8];
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

	rule->trust_ms = ((__s64)l.time_mask << l.unit_shift) - HOTNESS_LATE_MS - window_ms;
	rule->span = (((window_ms + HOTNESS_LATE_MS) >> l.unit_shift) - 1) << l.time_shift;
	rule->freq_threshold = freq_threshold;
	for (__u32 freq = 0; freq < 8; freq++) {
		__u32 next = freq < l.freq_max ? freq + 1 : l.freq_max;

		rule->step[freq] = next << l.freq_shift | (__u32)(next >= freq_threshold)
								  << l.ready_shift;
	}
}

HOTNESS_FN __u32 hotness_freq(__u32 rec, int precision)
{
	struct hotness_layout l = hotness_layout(precision);

	return (rec >> l.freq_shift) & l.freq_max;
}

/*
 * Time since the record's last access, in units and in the place of the time field; counted from
 * HOTNESS_LATE_MS before it, so that an access that lies slightly ahead of now is not taken for
 * one that lies a whole wrap behind. The bits below the time field are set before subtracting, so
 * that the record's lower fields borrow nothing.
 */
HOTNESS_FN __u32 hotness_late_age(__u32 rec, __u64 now_ms, int precision)
{
	struct hotness_layout l = hotness_layout(precision);
	__u32 late = HOTNESS_LATE_MS >> l.unit_shift;
	__u32 now = ((__u32)(now_ms >> l.unit_shift) + late) << l.time_shift;

	return ((now | ((1u << l.time_shift) - 1)) - rec) & l.time_mask << l.time_shift;
}

/* The record's last access lies surely within the window. */
HOTNESS_FN int hotness_fresh(__u32 rec, __u64 now_ms, const struct hotness_rule *rule,
			     int precision)
{
	return hotness_late_age(rec, now_ms, precision) <= rule->span;
}

/* The section's times are unambiguous. Never true of an idle section, whose word is small. */
HOTNESS_FN int hotness_trusted(__u64 section, __u64 now_ms)
{
	return section >= now_ms << HOTNESS_UNTIL_SHIFT;
}

/* The update rule: the record after an access by a CPU of `nid` at `now_ms`. */
HOTNESS_FN __u32 hotness_next(__u32 rec, __u64 now_ms, __u32 nid, int trusted,
			      const struct hotness_rule *rule, int precision)
{
	struct hotness_layout l = hotness_layout(precision);
	__u32 time = (__u32)(now_ms >> l.unit_shift) & l.time_mask;
	__u32 freq = 0;

	/* Likely: the pages whose reports come thick are the hot ones. */
	if (__builtin_expect(trusted && hotness_fresh(rec, now_ms, rule, precision), 1))
		freq = hotness_freq(rec, precision);
	return time << l.time_shift | (nid & l.nid_mask) | rule->step[freq];
}

/* What became of a report. */
enum hotness_result {
	HOTNESS_RECORDED,     /* the access is in the record */
	HOTNESS_BECAME_READY, /* and made the page ready, which it was not before */
	HOTNESS_LOST,         /* HOTNESS_TRIES lost races: not recorded */
	HOTNESS_NOT_TRACKED,  /* the page has no record: of those who look for one */
};

/*
 * Mark a section. The first mark of an idle section makes it as good as just aged, for all its
 * records are zero.
 */
HOTNESS_SLOW void hotness_mark(__u64 *section, __u64 need, __u64 now_ms,
			       const struct hotness_rule *rule)
{
	for (int i = 0; i < HOTNESS_MARK_TRIES; i++) {
		__u64 old = *(volatile __u64 *)section;
		__u64 new = old | need;

		if (new == old)
			return;
		if (!(old & (HOTNESS_LIVE | HOTNESS_SWEEPING)))
			new = need | (now_ms + rule->trust_ms) << HOTNESS_UNTIL_SHIFT;
		if (__sync_bool_compare_and_swap(section, old, new))
			return;
	}
}

/*
 * One try to change the record. Compares and swaps the 32-bit word around it, the least that BPF
 * can: a default-mode record shares its word with three neighbours, of which not a bit changes.
 */
HOTNESS_FN int hotness_try(__u32 *word, __u32 shift, __u64 *section, __u64 now_ms, __u32 nid,
			   int trusted, const struct hotness_rule *rule, int precision)
{
	struct hotness_layout l = hotness_layout(precision);
	__u32 old = *(volatile __u32 *)word;
	__u32 rec = (old >> shift) & l.mask;
	__u32 next = hotness_next(rec, now_ms, nid, trusted, rule, precision);
	__u32 new = old ^ (rec ^ next) << shift;
	__u64 marks;

	/* A page that is accessed all the time costs its neighbours no cache line. */
	if (__builtin_expect(new != old, 1) && !__sync_bool_compare_and_swap(word, old, new))
		return HOTNESS_LOST;
	/*
	 * The section is looked at after the record has changed: a sweep in between may have
	 * passed the record by and called the section idle.
	 */
	marks = *(volatile __u64 *)section;
	if (__builtin_expect((~marks & (HOTNESS_LIVE | HOTNESS_HOT)) != 0, 0)) {
		__u64 need = HOTNESS_LIVE | (__u64)(next >> l.ready_shift) << 1;

		if (~marks & need)
			hotness_mark(section, need, now_ms, rule);
	}
	return (next & ~rec) >> l.ready_shift; /* HOTNESS_BECAME_READY or HOTNESS_RECORDED */
}

/*
 * The first report into an idle section, reports into one that was not aged in time, and lost
 * races. An idle section is marked before its record changes, so that no record is non-zero in a
 * section that the migrator believes idle; and what it seems to hold is never trusted.
 */
HOTNESS_SLOW int hotness_report_slow(__u32 *word, __u32 shift, __u64 *section, __u64 now_ms,
				     __u32 nid, const struct hotness_rule *rule, int precision)
{
	int trusted = hotness_trusted(*(volatile __u64 *)section, now_ms);

	hotness_mark(section, HOTNESS_LIVE, now_ms, rule);
	for (int i = 0; i < HOTNESS_TRIES; i++) {
		int result =
			hotness_try(word, shift, section, now_ms, nid, trusted, rule, precision);

		if (result != HOTNESS_LOST)
			return result;
	}
	return HOTNESS_LOST;
}

/*
 * Report one access. `word` is the aligned 32-bit word that holds the record, `shift` the record's
 * first bit in it (0 in precision mode). Touches the record's and the section's cache line.
 */
HOTNESS_FN int hotness_report(__u32 *word, __u32 shift, __u64 *section, __u64 now_ms, __u32 nid,
			      const struct hotness_rule *rule, int precision)
{
	int result = HOTNESS_LOST;

	/* Where records have no nid, none is carried to the slow path. */
	nid &= hotness_layout(precision).nid_mask;
	if (__builtin_expect(hotness_trusted(*(volatile __u64 *)section, now_ms), 1))
		result = hotness_try(word, shift, section, now_ms, nid, 1, rule, precision);
	if (__builtin_expect(result == HOTNESS_LOST, 0))
		result = hotness_report_slow(word, shift, section, now_ms, nid, rule, precision);
	return result;
}

/* Ageing: what is left of a record at `now_ms`. Untrusted sections are cleared whole. */
HOTNESS_FN __u32 hotness_aged(__u32 rec, __u64 now_ms, int trusted, const struct hotness_rule *rule,
			      int precision)
{
	return trusted && hotness_fresh(rec, now_ms, rule, precision) ? rec : 0;
}

#endif
