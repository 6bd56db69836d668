// SPDX-License-Identifier: GPL-2.0-only
// Page cache: files that are read and written by system calls leave no trace in any page table.
// This program sees the kernel note such an access and reports the folio.

#include "records.bpf.h"
#include "layout.bpf.h"
#include "folio.bpf.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

enum pageflags___dropbehind { PG_dropbehind = 1 }; /* since 6.14 */

struct source_stats {
	struct source_counters common;
	/* Of the lower tier, and not reported: */
	__u64 anonymous_folios;
	__u64 mapped_folios;
	__u64 dropbehind_folios;
};

/* Per CPU (since 4.6), so that reads on many CPUs do not share a line for being counted. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct source_stats);
} stats SEC(".maps");

/*
 * Called by the thread that reads or writes, once for each folio that a system call goes through.
 * Exported to modules, so it is in every kernel with folios (5.16) and never inlined away.
 *
 * It is called for mapped folios too: when a page-table entry that was accessed goes away, and when
 * the kernel follows an address for somebody. These are echoes of accesses that page tables show
 * and that sources of other kinds report, so they would count twice. That leaves out read() of a
 * page that is mapped as well, which is the rarer case. And it makes the daemon's own mappings, by
 * which it moves page cache, invisible to it.
 */
SEC("fentry/folio_mark_accessed")
int BPF_PROG(page_cache, struct folio *folio)
{
	__u32 zero = 0;
	struct source_stats *s = bpf_map_lookup_elem(&stats, &zero);
	__u64 address = 0;

	if (!s)
		return 0;
	/* The pointer as a number, since 5.17: the verifier forbids arithmetic on the argument. */
	bpf_get_func_arg(ctx, 0, &address);

	/* The cheapest check first: most reads are of the top tier; it reads no kernel memory. */
	__u64 pfn = (address - layout.vmemmap) / bpf_core_type_size(struct page);

	if (record_index(pfn) < 0) {
		s->common.not_tracked++;
		return 0;
	}

	__u64 mapping = folio_mapping_bits(folio);

	if (!mapping || mapping & MAPPING_FLAGS) {
		s->anonymous_folios++;
		return 0;
	}

	unsigned long flags = folio_flags(folio);
	__u32 order = folio_order(folio, flags);

	if (folio_mapcount(folio, order, 1)) {
		s->mapped_folios++;
		return 0;
	}
	/* It leaves the cache right after this access (RWF_DONTCACHE). */
	if (bpf_core_enum_value_exists(enum pageflags___dropbehind, PG_dropbehind) &&
	    flags >> bpf_core_enum_value(enum pageflags___dropbehind, PG_dropbehind) & 1) {
		s->dropbehind_folios++;
		return 0;
	}

	report_folio(&s->common, pfn, 1ull << order, accessing_nid(),
		     bpf_ktime_get_ns() / NSEC_PER_MSEC, &rule);
	return 0;
}
