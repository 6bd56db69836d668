// SPDX-License-Identifier: GPL-2.0-only
// The page-table walk: which pages of a piece of a process's memory lie in the lower tier, and
// which of them have their accessed bit set. Reads only; clearing the bits is user space's
// business.
//
// A `syscall` program (since 5.14), because it runs when user space asks, and may loop. It walks
// inside bpf_find_vma() (since 5.17), which holds the mmap lock for reading, taken by trylock: no
// page table is freed under the walk, and a process that is busy changing its mappings is left
// alone.

#include "layout.bpf.h"
#include "page.bpf.h"
#include "hotness_place.h"

char LICENSE[] SEC("license") = "GPL";

/* Only the kernel fields that are used; CO-RE finds them in the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Complete, because libbpf compares the type with the kernel's where a kfunc returns it. */
struct task_struct {
	int tgid;
	struct mempolicy *mempolicy;
};

struct mempolicy {
	unsigned short flags;
};

struct file;

/* Without num_children (before 6.0) every VMA counts as forked. */
struct anon_vma {
	unsigned long num_children;
	struct anon_vma *parent;
};

struct mm_struct {
	void *pgd;
};

struct vm_area_struct {
	unsigned long vm_end;
	struct mm_struct *vm_mm;
	unsigned long vm_flags;
	struct file *vm_file;
	struct anon_vma *anon_vma;
	struct mempolicy *vm_policy;
};

struct page {
	atomic_t _mapcount;
};

struct folio {
	unsigned long _flags_1;
};

/* Since 6.10. */
struct folio___mapcount {
	atomic_t _large_mapcount;
};

#pragma clang attribute pop

/* Kfuncs since 6.2. */
extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym;
extern void bpf_task_release(struct task_struct *task) __ksym;

#define VM_WRITE   0x00000002ul
#define VM_SHARED  0x00000008ul
#define VM_PFNMAP  0x00000400ul
#define VM_IO      0x00004000ul
#define VM_HUGETLB 0x00400000ul

#define MPOL_F_MOF 0x8

#define EBUSY 16

/*
 * Bounds of one call, and so of one hold of the mmap lock: 128 lowest tables are 64 Ki entries, 0.3
 * to 0.7 ms. Steps through what is not mapped are cheaper, and more are allowed.
 */
#define TABLES_MAX 128
#define STEPS_MAX  4096
#define YOUNG_MAX  (TABLES_MAX * PTRS_PER_TABLE)

/* A young base page. Begins as an access of the record table does, to be reported as it is. */
struct young_page {
	__u64 pfn;
	__u32 nid;
	__u32 page; /* where it is mapped: pages from the start of the call's range */
};

/* A young large folio, by its head. */
struct young_folio {
	__u64 pfn;
	__u32 pages;
	__u32 page;
};

/* One lowest table, or a huge page in its place. */
struct table {
	__u64 address;
	__u64 lower_pages;
};

/* What user space asks for, and what it gets. */
struct walk {
	/* In. */
	__u64 start;
	__u64 end; /* exclusive; cut to the VMA */
	__u32 pid;
	__u32 nid; /* the node to report the accesses for */
	/* What is left out of the young pages: */
	__u16 leave_shared; /* what more than one process maps */
	__u16 leave_hinted; /* what hint faults see */
	__u32 nr_ranges;
	struct hotness_range ranges[HOTNESS_RANGES_MAX]; /* of the lower tier, ascending */
	/* Out. */
	__u64 next;    /* where to go on */
	__u64 entries; /* present ones, of both kinds */
	__u64 lower_pages;
	__u32 nr_young; /* in `young`, at first of all kinds, then of base pages */
	__u32 nr_folios;
	__u32 nr_tables;
	__u32 nr_shared; /* young, but left out */
	/* The program's own. */
	__u64 last_head;
	__u64 is_hinted; /* hint faults see the VMA's pages, unless they are shared */
};

_Static_assert(sizeof(struct young_page) == 16, "an access of the record table");

/*
 * Mmapable arrays (since 5.5), so that a call costs one system call and no copy. The state is a map
 * and not the program's context because the verifier follows every value that lies on a stack, and
 * would go through the loops below once for each.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct walk);
} state SEC(".maps");

struct young_pages {
	struct young_page at[YOUNG_MAX];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct young_pages);
} young SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, YOUNG_MAX);
	__type(key, __u32);
	__type(value, struct young_folio);
} folios SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TABLES_MAX);
	__type(key, __u32);
	__type(value, struct table);
} tables SEC(".maps");

/* A lowest table is copied before it is looked at: one read instead of 512. */
struct page_table {
	__u64 entries[PTRS_PER_TABLE];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct page_table);
} copy SEC(".maps");

static const __u32 zero;

static __always_inline __u64 lowest_pfn(const struct walk *w)
{
	return w->ranges[0].start_pfn;
}

/* From the first range of the lower tier to the last, whatever lies between. */
static __always_inline __u64 pfn_span(const struct walk *w)
{
	__u32 last = w->nr_ranges - 1;

	return w->ranges[last & (HOTNESS_RANGES_MAX - 1)].end_pfn - lowest_pfn(w);
}

/* 1 if value < limit, else 0, for values below 2^63; without a branch, see read_table(). */
static __always_inline __u64 below(__u64 value, __u64 limit)
{
	return ((value - limit) & ~value) >> 63;
}

static __always_inline void note_table(struct walk *w, __u64 address, __u64 lower_pages)
{
	__u32 key = w->nr_tables;
	struct table *table = bpf_map_lookup_elem(&tables, &key);

	w->nr_tables = key + 1;
	w->lower_pages += lower_pages;
	if (!table)
		return;
	table->address = address;
	table->lower_pages = lower_pages;
}

/*
 * The entries of one lowest table between first and first + count. Without a branch: the verifier
 * would follow both ways of each, 512 times. So an entry is always written and the index only moves
 * on behind those that are wanted.
 */
static __always_inline void read_table(struct walk *w, __u64 table, __u64 address, __u64 first,
				       __u64 count)
{
	struct page_table *pt = bpf_map_lookup_elem(&copy, &zero);
	struct young_pages *out = bpf_map_lookup_elem(&young, &zero);
	__u64 low = lowest_pfn(w), span = pfn_span(w);
	__u64 index = w->nr_young, present = 0, lower = 0;
	__u32 nid = w->nid, page = (address >> PAGE_SHIFT) - (w->start >> PAGE_SHIFT);

	if (!pt || !out)
		return;
	if (bpf_probe_read_kernel(pt, sizeof(*pt), (void *)table))
		return;
	for (int i = 0; i < PTRS_PER_TABLE; i++) {
		__u64 entry = pt->entries[i];
		__u64 pfn = entry_pfn(entry, PTE_PFN_MASK);
		__u64 wanted = entry & PTE_PRESENT & below((__u64)i - first, count);
		__u64 is_low = wanted & below(pfn - low, span);
		struct young_page *young_page = &out->at[index & (YOUNG_MAX - 1)];

		young_page->pfn = pfn;
		young_page->nid = nid;
		young_page->page = page + i;
		present += wanted;
		lower += is_low;
		index += is_low & entry >> PTE_ACCESSED_SHIFT;
	}
	w->nr_young = index;
	w->entries += present;
	note_table(w, address, lower);
}

static __always_inline void read_huge(struct walk *w, __u64 entry, __u64 address)
{
	struct young_pages *out = bpf_map_lookup_elem(&young, &zero);
	__u64 pfn = entry_pfn(entry, PMD_PFN_MASK);
	__u64 index = w->nr_young;

	w->entries++;
	if (!out || !below(pfn - lowest_pfn(w), pfn_span(w))) {
		note_table(w, address, 0);
		return;
	}
	note_table(w, address, PTRS_PER_TABLE);
	if (!(entry & PTE_ACCESSED))
		return;

	struct young_page *young_page = &out->at[index & (YOUNG_MAX - 1)];

	young_page->pfn = pfn;
	young_page->nid = w->nid;
	young_page->page = (address >> PAGE_SHIFT) - (w->start >> PAGE_SHIFT);
	w->nr_young = index + 1;
}

static __always_inline __u64 boundary(__u64 address, __u32 shift)
{
	return ((address >> shift) + 1) << shift;
}

struct step {
	__u64 pgd;
};

/* One lowest table, one huge page, or one hole of any size. */
static long walk_step(__u32 i, void *ctx)
{
	struct step *step = ctx;
	struct walk *w = bpf_map_lookup_elem(&state, &zero);

	if (!w)
		return 1;

	__u64 address = w->next, entry;
	__u32 shift;

	if (address >= w->end || w->nr_tables >= TABLES_MAX)
		return 1;
	entry = pmd_entry(step->pgd, address, layout.page_offset, layout.pgdir_shift, &shift);
	w->next = boundary(address, shift & 63);
	/* PROT_NONE, huge or not, is a hint fault's business and has no present bit. */
	if (!(entry & PTE_PRESENT))
		return 0;
	if (entry & PTE_HUGE) {
		read_huge(w, entry, address);
		return 0;
	}

	__u64 last = w->next < w->end ? w->next : w->end;
	__u64 base = address >> PMD_SHIFT << PMD_SHIFT;
	__u64 first = (address - base) >> PAGE_SHIFT;

	read_table(w, next_table(layout.page_offset, entry), base, first,
		   (last - address) >> PAGE_SHIFT);
	return 0;
}

/*
 * Whether the kernel's NUMA scanner marks the pages of a VMA (task_numa_work): not those that
 * belong to several processes, nor programs and libraries, nor what has a memory policy, unless
 * that says so.
 */
static __always_inline bool is_hinted(struct task_struct *task, struct vm_area_struct *vma)
{
	struct mempolicy *policy = vma->vm_policy ? vma->vm_policy : task->mempolicy;

	if (vma->vm_flags & VM_SHARED || (vma->vm_file && !(vma->vm_flags & VM_WRITE)))
		return false;
	return !policy || BPF_CORE_READ(policy, flags) & MPOL_F_MOF;
}

/*
 * Whether a fork may have left pages of a private VMA in several processes. The process that was
 * forked from has children (the root counts itself as one), a forked one has a parent.
 */
static __always_inline bool is_forked(struct vm_area_struct *vma)
{
	struct anon_vma *anon_vma = vma->anon_vma;

	if (!anon_vma)
		return false;
	if (!bpf_core_field_exists(struct anon_vma, num_children))
		return true;
	return BPF_CORE_READ(anon_vma, num_children) > 1 ||
	       BPF_CORE_READ(anon_vma, parent) != anon_vma;
}

static long walk_vma(struct task_struct *task, struct vm_area_struct *vma, void *ctx)
{
	struct walk *w = bpf_map_lookup_elem(&state, &zero);
	struct step step = {};

	if (!w)
		return 0;
	if (w->end > vma->vm_end)
		w->end = vma->vm_end;
	if (vma->vm_flags & (VM_PFNMAP | VM_IO | VM_HUGETLB)) {
		w->next = w->end;
		return 0;
	}
	w->is_hinted = is_hinted(task, vma);
	/* All of it is hint faults' business. */
	if (w->leave_hinted && w->is_hinted && !is_forked(vma)) {
		w->next = w->end;
		return 0;
	}
	step.pgd = (__u64)vma->vm_mm->pgd;
	bpf_loop(STEPS_MAX, walk_step, &step, 0);
	return 0;
}

static __always_inline bool is_shared(__u64 head, __u32 order)
{
	/* Counts begin at -1. */
	if (!order)
		return FIELD(head, struct page, _mapcount.counter) > 0;
	if (!bpf_core_field_exists(struct folio___mapcount, _large_mapcount))
		return true;
	return FIELD(head, struct folio___mapcount, _large_mapcount.counter) + 1 > 1 << order;
}

/*
 * Page table entries become accesses: what is not in the lower tier goes, and so do entries of one
 * folio behind the first, because one walk sees one access of a folio, however many entries map it.
 */
static long refine(__u32 i, void *ctx)
{
	struct walk *w = bpf_map_lookup_elem(&state, &zero);
	struct young_pages *all = bpf_map_lookup_elem(&young, &zero);

	if (!w || !all)
		return 1;

	struct young_page *from = &all->at[i & (YOUNG_MAX - 1)];
	__u64 page_bytes = bpf_core_type_size(struct page);
	__u64 page = layout.vmemmap + from->pfn * page_bytes;
	__u64 head = head_page(page);
	__u32 order = 0;

	if (hotness_index(w->ranges, w->nr_ranges, from->pfn) < 0 || head == w->last_head)
		return 0;
	if (is_head(head))
		order = FIELD(head, struct folio, _flags_1) & 0x3f;
	w->last_head = head;
	if (w->leave_shared || w->leave_hinted) {
		bool shared = is_shared(head, order);

		if (w->leave_shared && shared) {
			w->nr_shared++;
			return 0;
		}
		if (w->leave_hinted && w->is_hinted && !shared)
			return 0;
	}
	if (order) {
		__u32 key = w->nr_folios;
		struct young_folio *to = bpf_map_lookup_elem(&folios, &key);

		if (!to)
			return 1;
		w->nr_folios = key + 1;
		to->pfn = (head - layout.vmemmap) / page_bytes;
		to->pages = 1u << order;
		to->page = from->page;
		return 0;
	}

	/* In place: never ahead of what is read. */
	struct young_page *to = &all->at[w->nr_young & (YOUNG_MAX - 1)];

	w->nr_young++;
	to->pfn = from->pfn;
	to->nid = from->nid;
	to->page = from->page;
	return 0;
}

enum scan_result {
	SCAN_DONE,
	SCAN_NO_STATE,
	SCAN_NO_PROCESS,
	SCAN_BUSY, /* its mappings are being changed */
	SCAN_UNMAPPED,
};

SEC("syscall")
enum scan_result scan(void *ctx)
{
	struct walk *w = bpf_map_lookup_elem(&state, &zero);
	struct task_struct *task;
	struct step unused = {};
	long error;

	if (!w)
		return SCAN_NO_STATE;
	w->next = w->start;
	w->entries = w->lower_pages = w->last_head = 0;
	w->nr_young = w->nr_folios = w->nr_tables = w->nr_shared = 0;

	task = bpf_task_from_pid(w->pid);
	if (!task)
		return SCAN_NO_PROCESS;
	error = bpf_find_vma(task, w->start, walk_vma, &unused, 0);
	bpf_task_release(task);
	if (error)
		return error == -EBUSY ? SCAN_BUSY : SCAN_UNMAPPED;

	__u32 entries = w->nr_young;

	w->nr_young = 0;
	bpf_loop(entries, refine, &unused, 0);
	return SCAN_DONE;
}
