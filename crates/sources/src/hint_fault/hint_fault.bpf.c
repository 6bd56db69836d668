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
	pte_t orig_pte; /* in a union with orig_pmd */
	pte_t *pte;
} __attribute__((preserve_access_index));

/* As in engine/src/exchange/scales.rs; a test of mod.rs compares. */
#define FAULT_CLASSES   9
#define NARROWEST_SHIFT 3

struct source_stats {
	struct source_counters common;
	/* Faults so soon after the mark that their page is hot. */
	__u64 quick_faults;
	/* By time since the mark: below 8 ms, 16 ms, and so on; the last is for all later ones. */
	__u64 fault_times[FAULT_CLASSES];
};

/*
 * Written by the daemon while programs run: how soon after its mark a fault is quick, 0 for none,
 * and the rule for those that are, by which one access fills a record.
 */
SEC(".data.quick") volatile struct {
	struct hotness_rule rule;
	__u32 within_ms;
} quick;

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
	bool is_quick = since_ms < quick.within_ms;
	const struct hotness_rule *by = is_quick ? (const struct hotness_rule *)&quick.rule : &rule;
	int result = report_folio(&s->common, head, 1ull << order, nid, now_ms, by);

	if (result != HOTNESS_RECORDED && result != HOTNESS_BECAME_READY)
		return 0;
	if (is_quick)
		s->quick_faults++;
	for (__u32 i = 0; i < FAULT_CLASSES; i++) {
		if (since_ms >> (NARROWEST_SHIFT + i) && i < FAULT_CLASSES - 1)
			continue;
		s->fault_times[i]++;
		break;
	}
	return 0;
}
