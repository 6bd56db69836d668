// SPDX-License-Identifier: GPL-2.0-only
// Hint faults: NUMA balancing unmaps pages of the lower tier now and then, and the next access
// faults. This program sees each such fault and reports the page.

#include <stdbool.h>
#include "records.bpf.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* Only the kernel fields that are used; CO-RE finds them in the running kernel. */
typedef struct { unsigned long pte; } __attribute__((preserve_access_index)) pte_t;
typedef struct { unsigned long f; } __attribute__((preserve_access_index)) memdesc_flags_t;

struct vm_fault {
	pte_t orig_pte;		/* in a union with orig_pmd */
	pte_t *pte;
} __attribute__((preserve_access_index));

struct folio {
	unsigned long _flags_1;
} __attribute__((preserve_access_index));

/* folio->flags is a bare long up to 6.17 and a struct since. */
struct folio___long {
	unsigned long flags;
} __attribute__((preserve_access_index));

struct folio___memdesc {
	memdesc_flags_t flags;
} __attribute__((preserve_access_index));

enum pageflags { PG_head = 1 };

struct source_stats {
	__u64 recorded;
	__u64 recorded_pages;
	__u64 became_ready;
	__u64 lost;
	__u64 not_tracked;
	__u64 unreadable;
};

/* Per CPU (since 4.6), so that faults on many CPUs do not share a line for being counted. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct source_stats);
} stats SEC(".maps");

#define PTE_PRESENT	0x1ull
#define PTE_PFN_MASK	0x000ffffffffff000ull
#define PMD_PFN_MASK	0x000fffffffe00000ull

/*
 * Arguments of an fentry program are typed pointers that it may follow by itself; reading by helper
 * would cost a call for each field, five of them on every fault.
 */
static __always_inline __u32 folio_order(struct folio *folio)
{
	unsigned long flags;

	if (bpf_core_field_exists(struct folio___memdesc, flags.f))
		flags = ((struct folio___memdesc *)folio)->flags.f;
	else
		flags = ((struct folio___long *)folio)->flags;
	if (!(flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1))
		return 0;
	/* The low byte of the second page's flags (folio_large_order). */
	return folio->_flags_1 & 0x3f;
}

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
	__u32 order = folio_order(folio);

	if (!s)
		return 0;
	/* A PROT_NONE entry holds its address inverted, against L1TF. */
	if (!(entry & PTE_PRESENT))
		entry = ~entry;

	/*
	 * The kernel restores all of a large folio's entries at its first fault, so one fault stands
	 * for the folio: its head's record counts, whichever page was touched. Folios are aligned to
	 * their size.
	 */
	__u64 pfn = (entry & (huge ? PMD_PFN_MASK : PTE_PFN_MASK)) >> 12;
	__u64 head = pfn & ~((1ull << order) - 1);

	if (!pfn) {
		s->unreadable++;
		return 0;
	}

	__u64 now_ns = bpf_ktime_get_ns();
	int result = report(head, bpf_get_numa_node_id(), now_ns / NSEC_PER_MSEC);

	switch (result) {
	case HOTNESS_BECAME_READY:
		s->became_ready++;
		sample_ready(head, now_ns);
		/* fall through */
	case HOTNESS_RECORDED:
		s->recorded++;
		s->recorded_pages += 1ull << order;
		break;
	case HOTNESS_LOST:
		s->lost++;
		break;
	default:
		s->not_tracked++;
	}
	return 0;
}
