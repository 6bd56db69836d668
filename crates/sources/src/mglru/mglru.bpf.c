// SPDX-License-Identifier: GPL-2.0-only
// MGLRU aging: the kernel walks page tables, clears accessed bits and calls one function for each
// page that was young. These programs see those calls, and report the pages of the agings that the
// source's own thread asked for. Where there is no such function to see, others compare what the
// flags of all pages say before the aging and after it.

#include "records.bpf.h"
#include "layout.bpf.h"
#include "folio.bpf.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

struct lru_gen_mm_walk;

enum pageflags___referenced { PG_referenced = 2 };
enum pageflags___workingset { PG_workingset = 9 };
enum pageflags___lru { PG_lru = 4 };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct source_counters);
} stats SEC(".maps");

/* The aging under way: what the thread says about it, and what it finds. See ager.rs. */
struct aging {
	__u64 thread;         /* id of the thread whose agings are reported; 0: nobody's */
	__u64 nid;            /* the accessing node, as far as it is known */
	__u64 now_ms;         /* when it began: the time of all its reports */
	__u64 previous_ms;    /* when the one before began */
	__u64 leave_hinted;   /* hint faults report what one process alone maps */
	__u64 recorded_pages; /* found so far, in base pages */
	__u64 ready_folios;
	__u64 new_pages;    /* young, but perhaps only since they were allocated */
	__u64 recent_pages; /* reported by the aging before, or by this one already */
	__u64 folio;        /* see folio_pfn() */
};

/*
 * A mapped array (since 5.5), so that the thread starts and reads an aging without a system call.
 * Nothing here is atomic: the program runs on the thread's behalf, in its system call.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct aging);
} agings SEC(".maps");

/* Null unless the caller is the source's thread in an aging that is to be reported. */
static __always_inline struct aging *our_aging(void)
{
	__u32 zero = 0;
	struct aging *a = bpf_map_lookup_elem(&agings, &zero);

	if (!a || a->thread != (__u32)bpf_get_current_pid_tgid())
		return NULL;
	return a;
}

/* The PFN of a folio's head page. */
static __always_inline __u64 folio_pfn(struct aging *a, struct folio *folio)
{
	/*
	 * The verifier allows no arithmetic on a kernel pointer that it trusts. What comes out of a
	 * map is a number to it.
	 */
	*(volatile __u64 *)&a->folio = (__u64)folio;
	return (*(volatile __u64 *)&a->folio - layout.vmemmap) / bpf_core_type_size(struct page);
}

/* Anonymous, and mapped by one process: what the kernel's NUMA scanner marks. */
static __always_inline bool is_hinted(struct folio *folio, __u32 order)
{
	if (!(folio_mapping_bits(folio) & MAPPING_ANON))
		return false;
	return folio_mapcount(folio, order, 1 << 30) <= 1 << order;
}

/*
 * A page is reported by every second aging at most. Young twice in a row proves no more than one
 * burst of accesses, before and after the first aging: a huge page that is read from end to end
 * takes its time. A mapping more, or an entry more of the same large folio, is no access more.
 */
static __always_inline void report_young(struct aging *a, struct folio *folio, unsigned long flags,
					 bool is_new)
{
	__u32 zero = 0;
	struct source_counters *s = bpf_map_lookup_elem(&stats, &zero);
	__u32 order = folio_order(folio, flags);
	__u64 pages = 1ull << order;
	__u64 head = folio_pfn(a, folio);

	if (!s || (a->leave_hinted && is_hinted(folio, order)))
		return;
	if (is_reported_since(head, a->previous_ms, a->now_ms)) {
		a->recent_pages += pages;
		return;
	}
	if (is_new) {
		a->new_pages += pages;
		return;
	}
	switch (report_folio(s, head, pages, a->nid, a->now_ms, &rule)) {
	case HOTNESS_BECAME_READY:
		a->ready_folios++;
		/* fall through */
	case HOTNESS_RECORDED:
		a->recorded_pages += pages;
		break;
	case HOTNESS_LOST:
	case HOTNESS_NOT_TRACKED:
		break;
	}
}

/*
 * Kernels that call folio_update_gen() (in BTF of 6.12). At its exit, because its result is the
 * page's generation before: nobody else tells where the page flags keep it. A page that was in the
 * youngest generation already was faulted in after the last aging, and its accessed bit is that of
 * its birth. A negative one is on no list: just allocated, or taken off to be moved or freed.
 */
SEC("?fexit/folio_update_gen")
int BPF_PROG(mglru_update_gen, struct folio *folio, int gen, int old_gen)
{
	struct aging *a = our_aging();

	if (a)
		report_young(a, folio, folio_flags(folio), old_gen == gen || old_gen < 0);
	return 0;
}

/*
 * Kernels that inline folio_update_gen() into walk_update_folio() (in BTF of 7.2). These mark a
 * page with PG_referenced when it is faulted in, and with PG_workingset when they find it young and
 * move it to the youngest generation. With the first mark and without the second, it was never
 * found young before, and its accessed bit may be that of its birth.
 *
 * A page with neither is no new one. If its bit is cleared by others before MGLRU comes by (DAMON
 * does so), it ages; and each aging of ours takes PG_referenced off the oldest generation, because
 * it pushes that one out of the way. Found young then, such a page only gets PG_referenced, and
 * loses it in the same aging: for it, every time is the first.
 */
SEC("?fentry/walk_update_folio")
int BPF_PROG(mglru_walk_update, struct lru_gen_mm_walk *walk, struct folio *folio)
{
	struct aging *a = our_aging();

	if (!a || !folio)
		return 0;

	unsigned long flags = folio_flags(folio);
	__u32 referenced = bpf_core_enum_value(enum pageflags___referenced, PG_referenced);
	__u32 workingset = bpf_core_enum_value(enum pageflags___workingset, PG_workingset);

	report_young(a, folio, flags, (flags >> referenced & 1) && !(flags >> workingset & 1));
	return 0;
}

/*
 * Kernels that inline both. A young page moves to the generation that was the youngest when the
 * aging began, and its generation is in its page flags. On 6.12 births go there too, so a page must
 * have been in an older one right before. What changed meanwhile is what the aging found, whichever
 * memcg it is of: other lruvecs' pages move only when they are accessed, or when reclaim finds that
 * they were.
 *
 * `syscall` programs (since 5.14), which the source's thread runs right before the aging and right
 * after it. bpf_rdonly_cast (since 6.2) makes a typed pointer of an address.
 */
extern void *bpf_rdonly_cast(const void *object, __u32 type) __ksym __weak;

/* One bit for each page that has a record: in an older generation before the aging. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set before load: one for each section */
	__type(key, __u32);
	__uint(value_size, HOTNESS_SECTION_PAGES / 8);
} older_pages SEC(".maps");

/* See generations.rs. */
struct reading {
	__u64 first_pfn; /* of a section */
	__u32 section;
	__u32 gen_shift; /* where the flags keep the generation */
	__u32 youngest;  /* how they name the one that young pages move to */
	__u32 is_after;  /* read to report; 0: to remember */
};

_Static_assert(sizeof(struct reading) == 24, "without padding");

#define LRU_GEN_MASK 7 /* four generations, one more than its number, or 0 on no list */

static __always_inline struct folio *folio_at(__u64 pfn)
{
	void *page = (void *)(layout.vmemmap + pfn * bpf_core_type_size(struct page));

	return bpf_rdonly_cast(page, bpf_core_type_id_kernel(struct folio));
}

static long read_page(__u32 i, void *ctx)
{
	struct reading *r = ctx;
	__u32 section = r->section;
	__u32 zero = 0;
	__u64 *older = bpf_map_lookup_elem(&older_pages, &section);
	struct aging *a = bpf_map_lookup_elem(&agings, &zero);

	if (!older || !a)
		return 1;

	struct folio *folio = folio_at(r->first_pfn + i);
	unsigned long flags = folio_flags(folio);
	__u32 gen = flags >> (r->gen_shift & 63) & LRU_GEN_MASK;
	/* Never set in the tails of a large folio. */
	bool is_listed = gen && flags >> bpf_core_enum_value(enum pageflags___lru, PG_lru) & 1;
	__u64 *word = &older[(i & (HOTNESS_SECTION_PAGES - 1)) / 64];
	__u64 bit = 1ull << (i & 63);

	if (r->is_after) {
		if (*word & bit && is_listed && gen == r->youngest)
			report_young(a, folio, flags, false);
	} else if (is_listed && gen != r->youngest) {
		*word |= bit;
	} else {
		*word &= ~bit;
	}
	return 0;
}

/* What both of these programs return. */
enum mglru_result {
	MGLRU_READ,
	MGLRU_NO_CAST, /* the kernel has no bpf_rdonly_cast() */
};

/* Reads the flags of a section's pages. */
SEC("?syscall")
enum mglru_result mglru_read_section(struct reading *request)
{
	struct reading r = *request;

	if (!bpf_ksym_exists(bpf_rdonly_cast))
		return MGLRU_NO_CAST;
	bpf_loop(HOTNESS_SECTION_PAGES, read_page, &r, 0);
	return MGLRU_READ;
}

/* Page frames in, their flags out: for finding out where the flags keep the generation. */
#define OWN_PAGES_MAX 512

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, OWN_PAGES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} own_pages SEC(".maps");

static long read_flags(__u32 i, void *ctx)
{
	__u64 *slot = bpf_map_lookup_elem(&own_pages, &i);

	if (!slot)
		return 1;
	*slot = folio_flags(folio_at(*slot));
	return 0;
}

SEC("?syscall")
enum mglru_result mglru_page_flags(void *ctx)
{
	if (!bpf_ksym_exists(bpf_rdonly_cast))
		return MGLRU_NO_CAST;
	bpf_loop(OWN_PAGES_MAX, read_flags, NULL, 0);
	return MGLRU_READ;
}
