/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How long ago the kernel's scan marked a page that faults now.
 *
 * With the tiering bit of numa_balancing set, the scan leaves its time in the flags of each page of
 * the lower tier, in the place of the CPU and PID that accessed it last (folio_xchg_access_time,
 * since 6.1). It is what the kernel itself calls the page's latency, as long as it promotes.
 */
#ifndef PGHOT_SINCE_MARK_BPF_H
#define PGHOT_SINCE_MARK_BPF_H

#include "folio.bpf.h"
#include "hint_faults.h"

#define UNKNOWN_MS   0xffffffffu
#define MSEC_PER_SEC 1000

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Only their sizes are used. */
typedef struct {
	unsigned long bits[1];
} nodemask_t;

struct cpumask {
	unsigned long bits[1];
};

/* A kernel whose page flags have no room for it. */
struct page___cpupid {
	int _last_cpupid;
};

#pragma clang attribute pop

enum zone_type { __MAX_NR_ZONES = 4 };

/* Bits that number so many things; 3 at most are asked for of zones, 13 of CPUs. */
static __always_inline __u32 bits_for(__u64 things)
{
	__u32 bits = 0;

	for (int i = 0; i < 16; i++)
		if (1ull << bits < things)
			bits++;
	return bits;
}

/*
 * Jiffies per second, written by the daemon before a program is attached: no kernel tells a
 * program, and what is counted from the first fault on is known too late for the faults that matter
 * most. 0: unknown.
 */
SEC(".data.hz") volatile __u32 kernel_hz;

/*
 * Where the time lies in the flags, worked out at the first fault. libbpf fills in sizes when it
 * loads a program, too late for the compiler to fold them, and this takes 340 instructions; the
 * rest of a hint fault has 2,300. CPUs that race write the same values, the mask last.
 */
SEC(".data.place") volatile struct {
	__u32 shift;
	__u32 mask;
	__u32 node_shift;
} mark_place;

static __noinline int find_mark_place(void)
{
	/* From the top: node, zone, last CPU and PID; 8 bits of the PID (LAST__PID_SHIFT). */
	__u32 node_bits = bits_for(8 * bpf_core_type_size(nodemask_t));
	__u32 zone_bits = bits_for(bpf_core_enum_value(enum zone_type, __MAX_NR_ZONES));
	__u32 width = 8 + bits_for(8 * bpf_core_type_size(struct cpumask));

	mark_place.node_shift = (64 - node_bits) & 63;
	mark_place.shift = (64 - node_bits - zone_bits - width) & 63;
	barrier();
	mark_place.mask = (1u << width) - 1;
	return 0;
}

/* The node of a folio. */
static __always_inline __u32 folio_nid(struct folio *folio)
{
	if (!mark_place.mask)
		find_mark_place();
	return folio_flags(folio) >> (mark_place.node_shift & 63);
}

/* In ms; UNKNOWN_MS if it cannot be told. */
static __always_inline __u32 since_mark_ms(struct folio *folio)
{
	__u64 hz = kernel_hz;

	if (!hz || bpf_core_field_exists(struct page___cpupid, _last_cpupid))
		return UNKNOWN_MS;
	if (!mark_place.mask)
		find_mark_place();

	__u32 mask = mark_place.mask;
	__u32 marked_ms = folio_flags(folio) >> (mark_place.shift & 63) & mask;
	/* As jiffies_to_msecs() rounds. */
	__u32 now_ms = (bpf_jiffies64() * MSEC_PER_SEC + hz - 1) / hz;

	return (now_ms - marked_ms) & mask;
}

/* Processes that were visited lately, by a hash of their tgid: who comes later takes the place. */
#define VISITS_SHIFT  10
#define USEC_PER_SEC  1000000
#define NSEC_PER_USEC 1000

struct visit {
	__u64 tgid;
	__u64 end_ns; /* 0: under way */
};

/*
 * When the scan last was through with marking: milliseconds do not tell large folios apart, of
 * which all are touched at once. Other threads fault before the one that marks goes on: as soon as
 * their TLBs are flushed. An array, because to find a place must not fail nor take a lock.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << VISITS_SHIFT);
	__type(key, __u32);
	__type(value, struct visit);
} visits SEC(".maps");

static __always_inline struct visit *visit_of(__u64 tgid)
{
	__u32 place = hashed_place(tgid, VISITS_SHIFT);

	return bpf_map_lookup_elem(&visits, &place);
}

/* To be called by a thread that begins to mark memory of its process, with 0, and at the end. */
static __always_inline void note_visit(__u64 end_ns)
{
	__u64 tgid = bpf_get_current_pid_tgid() >> 32;
	struct visit *v = visit_of(tgid);

	if (!v)
		return;
	v->tgid = tgid;
	v->end_ns = end_ns;
}

/* None while the visit goes on, or if it ended on another CPU after this fault. */
static __always_inline __u64 since_end_us(const struct visit *v, __u64 now_ns)
{
	__u64 end_ns = v->end_ns;

	return end_ns && end_ns < now_ns ? (now_ns - end_ns) / NSEC_PER_USEC : 0;
}

/*
 * The same as since_mark_ms(), which must be known, in us: since the end of the process's last
 * visit, or none while it is under way, if the page was marked then, as far as jiffies tell.
 */
static __always_inline __u64 since_mark_us(__u32 since_ms, __u64 now_ns)
{
	__u64 tgid = bpf_get_current_pid_tgid() >> 32;
	__u64 marked_us = (__u64)since_ms * 1000;
	__u64 jiffy_us = USEC_PER_SEC / (kernel_hz ?: 1);
	struct visit *v = visit_of(tgid);

	if (!v || v->tgid != tgid)
		return marked_us;

	__u64 visit_us = since_end_us(v, now_ns);

	/* Two jiffies, for the visit itself may take that long. */
	if (marked_us > visit_us + 2 * jiffy_us || visit_us > marked_us + 2 * jiffy_us)
		return marked_us;
	return visit_us;
}

#define UNKNOWN_US (~0ull)

/*
 * Since the end of the process's last visit: for pages of the top tier, on which the scan leaves no
 * time. One that was marked at an earlier visit looks touched sooner than it was, if by chance it
 * is touched just after this one.
 */
static __always_inline __u64 since_visit_us(__u64 now_ns)
{
	__u64 tgid = bpf_get_current_pid_tgid() >> 32;
	struct visit *v = visit_of(tgid);

	if (!v || v->tgid != tgid)
		return UNKNOWN_US;
	return since_end_us(v, now_ns);
}

#endif
