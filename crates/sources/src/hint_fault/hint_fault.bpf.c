// SPDX-License-Identifier: GPL-2.0-only
// Hint faults: NUMA balancing unmaps pages of the lower tier now and then, and the next access
// faults. This program sees each such fault and reports the page.

#include "records.bpf.h"
#include "since_mark.bpf.h"
#include "page_table.bpf.h"
#include "hint_faults.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* Only the kernel fields that are used; CO-RE finds them in the running kernel. */
typedef struct {
	unsigned long pte;
} __attribute__((preserve_access_index)) pte_t;

struct vm_fault {
	unsigned long address;
	pte_t orig_pte; /* in a union with orig_pmd */
	pte_t *pte;
} __attribute__((preserve_access_index));

struct task_struct {
	unsigned int numa_scan_period; /* in ms */
} __attribute__((preserve_access_index));

/*
 * Longer than the periods that pghot gives threads: see crates/engine/src/pulse.rs. The kernel's
 * own are a second and more.
 */
#define SELDOM_MS 250

#define HUGE_BYTES (1ull << 21)

struct source_stats {
	struct source_counters common;
	/* Faults that say at one look that their page is hot. */
	__u64 quick_faults;
	/* Those of them that came later, but in a burst. */
	__u64 burst_faults;
	/* Late ones that are left to who reads accessed bits. */
	__u64 left_faults;
	/* Of threads that the scanner visits less often than SELDOM_MS. */
	__u64 seldom_visited_faults;
	/* Of pages without records, which are in the top tier. */
	__u64 above_faults;
	/* By hint_fault_class(). */
	__u64 fault_times[FAULT_CLASSES];
};

/* Written by the daemon while programs run. */
SEC(".data.quick") volatile struct quick_faults quick;

/*
 * Blocks of all processes. An array, because to find a place must not fail nor take a lock. Two
 * CPUs that count at once may lose a fault of a burst.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FAULT_BLOCKS);
	__type(key, __u32);
	__type(value, struct fault_block);
} blocks SEC(".maps");

static __always_inline enum hint_fault kind_of(struct vm_fault *vmf, __u32 order, __u32 since_ms,
					       __u32 now_ms)
{
	__u64 page = vmf->address >> PAGE_SHIFT;
	__u64 key = fault_block_key(bpf_get_current_pid_tgid() >> 32, page);
	__u32 place = fault_block_place(key);
	struct fault_block *b = quick.in_bursts ? bpf_map_lookup_elem(&blocks, &place) : NULL;

	return hint_fault_kind(&quick, b, key, page, order, since_ms, now_ms);
}

static __always_inline const struct hotness_rule *rule_of(enum hint_fault kind)
{
	switch (kind) {
	case HINT_FAULT_SOON:
	case HINT_FAULT_IN_BURST:
		return (const struct hotness_rule *)&quick.filling;
	case HINT_FAULT_EARLY:
		return (const struct hotness_rule *)&quick.sufficing;
	default:
		return &rule;
	}
}

/* A hint fault of a huge page, for who compares those of both tiers. */
struct huge_fault {
	__u64 number; /* from 1 on; 0 while it is being written */
	__u64 address;
	__u64 since_mark_us;
	__u64 who; /* its process, and above these 32 bits its node + 1 if that has no records */
};

#define HUGE_FAULTS_MAX 1024

/*
 * A mapped array that wraps (since 5.5) and not a ring buffer, as for ready_samples. Element 0
 * counts the faults; fault n lies in 1 + n % (HUGE_FAULTS_MAX - 1). Without it huge pages of a full
 * top tier change places only where some are idle from one aging to the next.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, HUGE_FAULTS_MAX);
	__type(key, __u32);
	__type(value, struct huge_fault);
} huge_faults SEC(".maps");

static __always_inline void note_huge_fault(__u64 address, __u64 since_mark_us, __u64 node)
{
	__u32 key = 0;
	struct huge_fault *f = bpf_map_lookup_elem(&huge_faults, &key);

	if (!f || since_mark_us == UNKNOWN_US)
		return;

	__u64 number = __sync_fetch_and_add(&f->number, 1) + 1;

	key = 1 + number % (HUGE_FAULTS_MAX - 1);
	f = bpf_map_lookup_elem(&huge_faults, &key);
	if (!f)
		return;
	*(volatile __u64 *)&f->number = 0;
	f->address = address & ~(HUGE_BYTES - 1);
	f->since_mark_us = since_mark_us;
	f->who = node << 32 | bpf_get_current_pid_tgid() >> 32;
	barrier();
	*(volatile __u64 *)&f->number = number;
}

/* Not static, so that it is verified once and by itself, not on each way that leads here. */
__noinline __u32 class_of(__u32 kind, __u32 since_ms)
{
	return hint_fault_class(kind, since_ms);
}

static __always_inline void count_time(struct source_stats *s, enum hint_fault kind, __u32 since_ms)
{
	__u32 class = class_of(kind, since_ms);

	if (class < FAULT_CLASSES)
		s->fault_times[class]++;
}

/*
 * Where the scan marks a part of a mapping, and where that is done and all CPUs know of it. In the
 * kernel since 3.8; programs can be attached since 5.5. Without them a large folio whose mark and
 * fault are in the same jiffy is taken for hot.
 */
SEC("?fentry/change_prot_numa")
int marking(void *ctx)
{
	note_visit(0);
	return 0;
}

SEC("?fexit/change_prot_numa")
int marked(void *ctx)
{
	note_visit(bpf_ktime_get_ns());
	return 0;
}

/* Per CPU (since 4.6), so that faults on many CPUs do not share a line for being counted. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct source_stats);
} stats SEC(".maps");

/*
 * Called with the page-table lock held, for base pages and huge ones, just where the kernel counts
 * numa_hint_faults and before it thinks about moving. In BTF and with this signature since 6.12;
 * without it the source is unavailable. task_numa_fault, the classic hook, knows no page.
 */
SEC("fentry/numa_migrate_check")
int BPF_PROG(hint_fault, struct folio *folio, struct vm_fault *vmf)
{
	__u32 zero = 0;
	struct source_stats *s = bpf_map_lookup_elem(&stats, &zero);
	__u64 entry = upright_entry(vmf->orig_pte.pte);
	bool huge = !vmf->pte;
	__u32 order = folio_order(folio, folio_flags(folio));

	if (!s)
		return 0;

	/*
	 * The kernel restores all of a large folio's entries at its first fault, so one fault
	 * stands for the folio: its head's record counts, whichever page was touched. Folios are
	 * aligned to their size.
	 */
	__u64 pfn = entry_pfn(entry, huge ? PMD_PFN_MASK : PTE_PFN_MASK);
	__u64 head = pfn & ~((1ull << order) - 1);

	if (bpf_get_current_task_btf()->numa_scan_period > SELDOM_MS)
		s->seldom_visited_faults++;
	if (!pfn) {
		s->common.unreadable++;
		return 0;
	}

	__u64 now_ns = bpf_ktime_get_ns();

	if (!is_tracked(head)) {
		s->common.not_tracked++;
		s->above_faults++;
		if (huge)
			note_huge_fault(vmf->address, since_visit_us(now_ns), folio_nid(folio) + 1);
		return 0;
	}

	__u32 nid = accessing_nid();
	__u64 now_ms = now_ns / NSEC_PER_MSEC;
	__u32 since_ms = since_mark_ms(folio);

	if (order && since_ms != UNKNOWN_MS) {
		__u64 since_us = since_mark_us(since_ms, now_ns);

		if (huge)
			note_huge_fault(vmf->address, since_us, 0);
		since_ms = page_since_mark_ms(since_us, order);
	}

	enum hint_fault kind = kind_of(vmf, order, since_ms, now_ms);

	if (kind == HINT_FAULT_LEFT) {
		s->left_faults++;
		count_time(s, kind, since_ms);
		return 0;
	}

	const struct hotness_rule *by = rule_of(kind);
	enum hotness_result result = report_folio(&s->common, head, 1ull << order, nid, now_ms, by);

	if (result != HOTNESS_RECORDED && result != HOTNESS_BECAME_READY)
		return 0;
	if (kind != HINT_FAULT_COUNTED)
		s->quick_faults++;
	if (kind == HINT_FAULT_IN_BURST)
		s->burst_faults++;
	count_time(s, kind, since_ms);
	return 0;
}
