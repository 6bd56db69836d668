// SPDX-License-Identifier: GPL-2.0-only
// Page cache: files that are read and written by system calls leave no trace in any page table.
// This program sees the kernel note such an access and reports the folio.

#include <stdbool.h>
#include "records.bpf.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* Only the kernel fields that are used; CO-RE finds them in the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct { unsigned long f; } memdesc_flags_t;
typedef struct { int counter; } atomic_t;

struct page {
	unsigned long compound_head;
};

struct folio {
	void *mapping;
	atomic_t _mapcount;
	unsigned long _flags_1;
};

/* folio->flags is a bare long up to 6.17 and a struct since. */
struct folio___long {
	unsigned long flags;
};

struct folio___memdesc {
	memdesc_flags_t flags;
};

/* Since 6.10. Before, a large folio has no count of its own, and such folios are left out. */
struct folio___large {
	atomic_t _large_mapcount;
};

enum pageflags { PG_head = 1 };
enum pageflags___dropbehind { PG_dropbehind = 1 };	/* since 6.14 */

#pragma clang attribute pop

/* From /proc/kallsyms; a constant where the kernel's layout is not randomised. */
extern const void vmemmap_base __ksym __weak;
extern const void pgdir_shift __ksym __weak;

#define L4_VMEMMAP	0xffffea0000000000ull
#define L5_VMEMMAP	0xffd4000000000000ull

/* The first words are those of every source (sources/src/attach.rs), the others our own. */
struct source_stats {
	__u64 recorded;
	__u64 recorded_pages;
	__u64 became_ready;
	__u64 lost;
	__u64 not_tracked;
	__u64 unreadable;
	/* Of the lower tier, and not reported: */
	__u64 anonymous;
	__u64 mapped;
	__u64 dropbehind;
};

/* Per CPU (since 4.6), so that reads on many CPUs do not share a line for being counted. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct source_stats);
} stats SEC(".maps");

/*
 * Where struct page 0 lies, 0 before the first event. Kept, because reading it from the kernel
 * takes a helper call, and this program runs on every buffered read of the machine.
 */
SEC(".data.layout") static volatile __u64 vmemmap;

static __always_inline __u64 find_vmemmap(void)
{
	__u32 shift = 39;
	__u64 base = 0;

	if (&pgdir_shift)
		bpf_probe_read_kernel(&shift, sizeof(shift), &pgdir_shift);
	base = shift == 48 ? L5_VMEMMAP : L4_VMEMMAP;
	if (&vmemmap_base)
		bpf_probe_read_kernel(&base, sizeof(base), &vmemmap_base);
	vmemmap = base;
	return base;
}

static __always_inline unsigned long folio_flags(struct folio *folio)
{
	if (bpf_core_field_exists(struct folio___memdesc, flags.f))
		return ((struct folio___memdesc *)folio)->flags.f;
	return ((struct folio___long *)folio)->flags;
}

/* Does any process map it? The kernel counts from -1. */
static __always_inline bool is_mapped(struct folio *folio, bool large)
{
	if (!large)
		return folio->_mapcount.counter >= 0;
	if (bpf_core_field_exists(struct folio___large, _large_mapcount))
		return ((struct folio___large *)folio)->_large_mapcount.counter >= 0;
	return true;
}

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
	__u64 base = vmemmap;
	__u64 address = 0;

	if (!s)
		return 0;
	if (!base)
		base = find_vmemmap();
	/* The pointer as a number, since 5.17: the verifier forbids arithmetic on the argument. */
	bpf_get_func_arg(ctx, 0, &address);

	/* The cheapest check first: most reads are of the top tier, and it touches no kernel memory. */
	__u64 pfn = (address - base) / bpf_core_type_size(struct page);

	if (record_index(pfn) < 0) {
		s->not_tracked++;
		return 0;
	}

	/*
	 * The low bits tell anonymous memory and pages of drivers. Read by helper, since the verifier
	 * lets nobody look at the bits of a pointer that it follows by itself.
	 */
	__u64 mapping = 0;

	bpf_probe_read_kernel(&mapping, sizeof(mapping), &folio->mapping);
	if (!mapping || mapping & 3) {
		s->anonymous++;
		return 0;
	}

	unsigned long flags = folio_flags(folio);
	bool large = flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1;

	if (is_mapped(folio, large)) {
		s->mapped++;
		return 0;
	}
	/* It leaves the cache right after this access (RWF_DONTCACHE). */
	if (bpf_core_enum_value_exists(enum pageflags___dropbehind, PG_dropbehind) &&
	    flags >> bpf_core_enum_value(enum pageflags___dropbehind, PG_dropbehind) & 1) {
		s->dropbehind++;
		return 0;
	}

	__u64 pages = 1;

	if (large)
		pages <<= folio->_flags_1 & 0x3f;	/* the order (folio_large_order) */

	__u64 now_ns = bpf_ktime_get_ns();
	int result = report(pfn, bpf_get_numa_node_id(), now_ns / NSEC_PER_MSEC);

	switch (result) {
	case HOTNESS_BECAME_READY:
		s->became_ready++;
		sample_ready(pfn, now_ns);
		/* fall through */
	case HOTNESS_RECORDED:
		s->recorded++;
		s->recorded_pages += pages;
		break;
	case HOTNESS_LOST:
		s->lost++;
		break;
	default:
		s->not_tracked++;
	}
	return 0;
}
