// SPDX-License-Identifier: GPL-2.0-only
// Hint faults: NUMA balancing unmaps pages of the lower tier now and then, and the next access
// faults. This program sees each such fault and reports the page.

#include <stdbool.h>
#include "records.bpf.h"
#include "since_mark.bpf.h"
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

/* As in engine/src/exchange/scales.rs; a test of mod.rs compares. */
#define FAULT_CLASSES   9
#define NARROWEST_SHIFT 3

struct source_stats {
	struct source_counters common;
	/* Faults that say at one look that their page is hot. */
	__u64 quick_faults;
	/* Those of them that came later, but in a burst. */
	__u64 burst_faults;
	/* By time since the mark: below 8 ms, 16 ms, and so on; the last is for all later ones. */
	__u64 fault_times[FAULT_CLASSES];
};

/*
 * Written by the daemon while programs run: which faults are quick, and the rule for those, by
 * which one access fills a record.
 */
SEC(".data.quick") volatile struct {
	struct hotness_rule rule;
	/* Those that come so soon after the mark; 0: none. */
	__u32 within_ms;
	/* Whether faults in a burst are quick too. */
	__u32 in_bursts;
} quick;

/* A burst is so many faults of a block within this time, and those that follow; as in bursts.rs. */
#define BURST_FAULTS 64
#define BURST_MS     64
#define BLOCK_SHIFT  21
#define BLOCK_PAGES  (1u << (BLOCK_SHIFT - 12))
#define BLOCK_WORDS  (BLOCK_PAGES / 64)

/* The newest faults of 2 MiB of a process's memory. */
struct block {
	__u64 key;
	__u32 start_ms;
	/* Without those that come in a row. */
	__u32 faults;
	/* Pages that faulted, a bit each. */
	__u64 faulted[BLOCK_WORDS];
};

/*
 * Blocks in which faults came lately, by a hash of their key: who comes later takes the place. An
 * array, because to find a place must not fail nor take a lock. Two CPUs that count at once may
 * lose a fault of a burst.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct block);
} blocks SEC(".maps");

/* Of the page before or after; those beyond the block's ends wrap. */
static __always_inline bool has_faulted(struct block *b, __u32 page)
{
	page &= BLOCK_PAGES - 1;
	return b->faulted[page / 64 & (BLOCK_WORDS - 1)] >> (page % 64) & 1;
}

/*
 * Whether so many faults came in its neighbourhood within a short time that it is in use. Faults in
 * a row do not count: somebody passes over memory once.
 */
static __always_inline bool is_in_burst(struct vm_fault *vmf, __u32 now_ms)
{
	__u64 tgid = bpf_get_current_pid_tgid() >> 32;
	__u64 key = tgid << 32 | vmf->address >> BLOCK_SHIFT;
	__u32 place = key * 0x9e3779b97f4a7c15ull >> 52;
	struct block *b = bpf_map_lookup_elem(&blocks, &place);

	if (!b)
		return false;
	if (b->key != key || now_ms - b->start_ms >= BURST_MS) {
		b->key = key;
		b->start_ms = now_ms;
		b->faults = 0;
		for (int i = 0; i < BLOCK_WORDS; i++)
			b->faulted[i] = 0;
	}

	__u32 page = vmf->address >> 12 & (BLOCK_PAGES - 1);
	bool is_in_row = has_faulted(b, page - 1) || has_faulted(b, page - 2) ||
			 has_faulted(b, page + 1) || has_faulted(b, page + 2);

	b->faulted[page / 64 & (BLOCK_WORDS - 1)] |= 1ull << page % 64;
	if (!is_in_row)
		b->faults++;
	return b->faults > BURST_FAULTS;
}

/* Per CPU (since 4.6), so that faults on many CPUs do not share a line for being counted. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct source_stats);
} stats SEC(".maps");

#define PTE_PRESENT  0x1ull
#define PTE_PFN_MASK 0x000ffffffffff000ull
#define PMD_PFN_MASK 0x000fffffffe00000ull

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
	__u64 entry = vmf->orig_pte.pte;
	bool huge = !vmf->pte;
	__u32 order = folio_order(folio, folio_flags(folio));

	if (!s)
		return 0;
	/* A PROT_NONE entry holds its address inverted, against L1TF. */
	if (!(entry & PTE_PRESENT))
		entry = ~entry;

	/*
	 * The kernel restores all of a large folio's entries at its first fault, so one fault
	 * stands for the folio: its head's record counts, whichever page was touched. Folios are
	 * aligned to their size.
	 */
	__u64 pfn = (entry & (huge ? PMD_PFN_MASK : PTE_PFN_MASK)) >> 12;
	__u64 head = pfn & ~((1ull << order) - 1);

	if (!pfn) {
		s->common.unreadable++;
		return 0;
	}

	__u32 nid = bpf_get_numa_node_id();
	__u64 now_ms = bpf_ktime_get_ns() / NSEC_PER_MSEC;
	__u32 since_ms = since_mark_ms(folio);
	/*
	 * Touched so soon after the mark, hence often. The scan may come back to this page only
	 * when the window is over, so the page is ready now, and before those that merely were
	 * touched now and then.
	 */
	bool is_soon = since_ms < quick.within_ms;
	bool is_quick = is_soon || (quick.in_bursts && is_in_burst(vmf, now_ms));
	const struct hotness_rule *by = is_quick ? (const struct hotness_rule *)&quick.rule : &rule;
	int result = report_folio(&s->common, head, 1ull << order, nid, now_ms, by);

	if (result != HOTNESS_RECORDED && result != HOTNESS_BECAME_READY)
		return 0;
	if (is_quick)
		s->quick_faults++;
	if (is_quick && !is_soon)
		s->burst_faults++;
	for (__u32 i = 0; i < FAULT_CLASSES; i++) {
		if (since_ms >> (NARROWEST_SHIFT + i) && i < FAULT_CLASSES - 1)
			continue;
		s->fault_times[i]++;
		break;
	}
	return 0;
}
