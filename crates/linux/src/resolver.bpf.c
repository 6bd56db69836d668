// SPDX-License-Identifier: GPL-2.0-only
// The resolver: page frame number -> a process and an address that map it, or a file and an offset.
//
// The kernel knows this (rmap) but offers it to nobody. This program walks the same structures as
// rmap_walk() does, without their locks: every read is fault-safe (bpf_probe_read_kernel) and may
// be stale, so each hit is checked against the process's page tables before it is believed, and
// what remains wrong is caught by move_pages(), which moves by address and reports per page.
//
// A `syscall` program (since 5.14), because it runs when user space asks, on a batch, and may loop.

#include "layout.bpf.h"
#include "page.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* Only the kernel fields that are used; CO-RE finds them in the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct rb_node {
	unsigned long __rb_parent_color;
	struct rb_node *rb_right;
	struct rb_node *rb_left;
};

struct rb_root {
	struct rb_node *rb_node;
};

struct rb_root_cached {
	struct rb_root rb_root;
};

struct address_space;
struct task_struct;

struct page {
	struct address_space *mapping;
	unsigned int page_type;
	atomic_t _refcount;
};

struct folio {
	unsigned long index;
	unsigned long _flags_1;
	atomic_t _mapcount;
	atomic_t _large_mapcount;
};

struct anon_vma {
	struct rb_root_cached rb_root;
};

struct super_block {
	unsigned int s_dev;
};

struct inode {
	unsigned short i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	unsigned int i_generation;
};

struct address_space {
	struct inode *host;
	struct rb_root_cached i_mmap;
};

struct vm_area_struct;

struct anon_vma_chain {
	struct vm_area_struct *vma;
	struct rb_node rb;
	unsigned long rb_subtree_last;
};

struct vma_shared {
	struct rb_node rb;
	unsigned long rb_subtree_last;
};

struct mm_struct {
	void *pgd;
	struct task_struct *owner;
};

struct task_struct {
	int tgid;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	struct mm_struct *vm_mm;
	unsigned long vm_pgoff;
	struct {
		struct rb_node rb;
		unsigned long rb_subtree_last;
	} shared;
};

#pragma clang attribute pop

#define BATCH_MAX 4096

/*
 * Steps of a search, of which a mapping takes about five. For one page, so that the last of some
 * thousand processes is found; and for a call, which may not be preempted: what is left when they
 * are used up is not found, and asked for again.
 */
#define WALK_STEPS_MAX 16384
#define CALL_STEPS_MAX 262144

/* Low bits of page->mapping. */
#define MAPPING_ANON 1ull
#define MAPPING_KSM  3ull

enum verdict : __u16 {
	MAPPED = 1,
	FREE,
	KSM,
	KERNEL,
	UNOPENABLE, /* page cache of something that is not a regular file */
	NOT_FOUND,
	CACHED,
};

struct answer {
	__u64 head_pfn;
	__u64 address; /* MAPPED: in the process; CACHED: offset in the file, in bytes */
	__u64 inode;
	__u32 device;
	__u32 generation;
	__u32 tgid;
	enum verdict verdict;
	__u16 order;
};

_Static_assert(sizeof(struct answer) == 40, "without padding");

/*
 * The batch, in and out: one mmapable array (since 5.5) each, so that a batch costs one system
 * call and no copy.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BATCH_MAX);
	__type(key, __u32);
	__type(value, __u64);
} pfns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, BATCH_MAX);
	__type(key, __u32);
	__type(value, struct answer);
} answers SEC(".maps");

struct request {
	__u32 nr_pages;
};

/* Where a process maps a part of a file or of anonymous memory. */
struct mapped {
	__u64 first; /* offset of its first page */
	__u64 start; /* addresses */
	__u64 end;
	__u64 pgd;
	__u32 tgid;
};

enum phase { DESCEND, VISIT, PROBE, RIGHT, CLIMB };

/* One page's search, for the callbacks of bpf_loop. */
struct search {
	bool anon;
	__u8 phase;
	__u32 steps_left; /* of the call */
	__u64 pfn;        /* head page */
	__u64 pages;      /* of its folio */
	__u64 pgoff;      /* its offset in the file or anonymous mapping, in pages */
	__u64 root;       /* of the interval tree of mappings */
	__u64 node; /* rb_node under inspection; 0: the mapping that the last page was found in */
	__u64 address;    /* the result, 0 if none */
	struct mapped in; /* mapping under inspection */
	__u64 page;       /* page of the folio under inspection, and where they end in it */
	__u64 pages_end;
	__u64 mapping; /* that the last page was found by, and where */
	struct mapped last;
};

/*
 * The search of the call under way. There is one call at a time, because its batch is in the maps
 * above. Global data (since 5.2) and not a variable on the stack: the verifier tracks values on the
 * stack, and would check each phase with each known value. On 7.2 that took 467,011 steps of the
 * 1,000,000 that it allows; it does not track what is in a map, and takes 2,210.
 */
static struct search search;

/*
 * Does the process map this page of the folio? Mostly the first one tells. But programs give back
 * single pages, and whoever writes to one after a fork gets a copy; what they keep of the folio
 * moves as a whole, by whichever page it is named.
 */
static __always_inline bool maps(struct search *s)
{
	__u64 address = s->in.start + ((s->pgoff + s->page - s->in.first) << PAGE_SHIFT);
	__u64 in_table = address >> PAGE_SHIFT & (PTRS_PER_TABLE - 1);
	__u64 next = s->page + PTRS_PER_TABLE - in_table;
	__u64 mask = PTE_PFN_MASK, within = 0;
	__u32 shift;
	__u64 entry = pmd_entry(s->in.pgd, address, layout.page_offset, layout.pgdir_shift, &shift);

	if (entry & PTE_HUGE) {
		mask = PMD_PFN_MASK;
		within = in_table;
	} else if (entry & PTE_PRESENT) {
		entry = entry_at(next_table(layout.page_offset, entry), address, PAGE_SHIFT);
		next = s->page + 1;
	} else {
		entry = 0;
	}
	if (entry & (PTE_PRESENT | PTE_PROTNONE) &&
	    entry_pfn(upright_entry(entry), mask) + within == s->pfn + s->page) {
		s->address = address;
		return true;
	}
	s->page = next;
	return false;
}

/* Has the pages of the folio that are in the mapping under inspection probed, if there are any. */
static __always_inline void inspect(struct search *s)
{
	__u64 end = s->in.first + ((s->in.end - s->in.start) >> PAGE_SHIFT);

	s->page = s->in.first > s->pgoff ? s->in.first - s->pgoff : 0;
	s->pages_end = end - s->pgoff < s->pages ? end - s->pgoff : s->pages;
	s->phase = end > s->pgoff && s->in.tgid ? PROBE : RIGHT;
}

static __always_inline __u64 node_vma(struct search *s, __u64 node)
{
	if (s->anon) {
		__u64 chain = node - bpf_core_field_offset(struct anon_vma_chain, rb);

		return (__u64)FIELD(chain, struct anon_vma_chain, vma);
	}
	return node - bpf_core_field_offset(struct vm_area_struct, shared.rb);
}

/* The largest last offset in the subtree of `node`. */
static __always_inline __u64 subtree_last(struct search *s, __u64 node)
{
	if (s->anon) {
		__u64 chain = node - bpf_core_field_offset(struct anon_vma_chain, rb);

		return FIELD(chain, struct anon_vma_chain, rb_subtree_last);
	}
	__u64 vma = node - bpf_core_field_offset(struct vm_area_struct, shared.rb);

	return FIELD(vma, struct vm_area_struct, shared.rb_subtree_last);
}

/*
 * One step through the interval tree of mappings, in order of their first offset, entering only
 * subtrees that reach the wanted offset. Without a stack: parents are in the nodes.
 */
static long walk_step(__u32 step, void *ctx)
{
	struct search *s = &search;
	__u64 node = s->node;

	if (!s->steps_left)
		return 1;
	s->steps_left--;
	if (s->phase == DESCEND) {
		__u64 left = (__u64)FIELD(node, struct rb_node, rb_left);

		if (left && subtree_last(s, left) >= s->pgoff) {
			s->node = left;
			return 0;
		}
		s->phase = VISIT;
		return 0;
	}
	if (s->phase == VISIT) {
		__u64 vma = node_vma(s, node);
		__u64 mm = (__u64)FIELD(vma, struct vm_area_struct, vm_mm);
		__u64 owner = (__u64)FIELD(mm, struct mm_struct, owner);

		s->in.first = FIELD(vma, struct vm_area_struct, vm_pgoff);
		s->in.start = FIELD(vma, struct vm_area_struct, vm_start);
		s->in.end = FIELD(vma, struct vm_area_struct, vm_end);
		s->in.pgd = (__u64)FIELD(mm, struct mm_struct, pgd);
		s->in.tgid = FIELD(owner, struct task_struct, tgid);
		/* From here on all begin behind the folio. */
		if (s->in.first >= s->pgoff + s->pages)
			s->phase = CLIMB;
		else
			inspect(s);
		return 0;
	}
	if (s->phase == PROBE) {
		if (s->page >= s->pages_end)
			s->phase = RIGHT;
		else if (maps(s))
			return 1;
		return 0;
	}
	if (s->phase == RIGHT && !node) {
		s->node = s->root;
		s->phase = DESCEND;
		return !s->root;
	}
	if (s->phase == RIGHT) {
		__u64 right = (__u64)FIELD(node, struct rb_node, rb_right);

		s->phase = CLIMB;
		if (right && subtree_last(s, right) >= s->pgoff) {
			s->node = right;
			s->phase = DESCEND;
		}
		return 0;
	}
	__u64 parent = FIELD(node, struct rb_node, __rb_parent_color) & ~3ull;

	if (!parent)
		return 1;
	if ((__u64)FIELD(parent, struct rb_node, rb_left) == node)
		s->phase = VISIT;
	s->node = parent;
	return 0;
}

#define S_IFMT  0170000
#define S_IFREG 0100000

/* Names the file of a page-cache page, by which user space can open it and map the page itself. */
static __always_inline enum verdict name_file(struct search *s, __u64 mapping, struct answer *a)
{
	__u64 inode = (__u64)FIELD(mapping, struct address_space, host);
	__u64 sb = (__u64)FIELD(inode, struct inode, i_sb);

	/* Block devices, which cache metadata of their file systems, and long symbolic links. */
	if ((FIELD(inode, struct inode, i_mode) & S_IFMT) != S_IFREG)
		return UNOPENABLE;
	a->inode = FIELD(inode, struct inode, i_ino);
	a->generation = FIELD(inode, struct inode, i_generation);
	a->device = FIELD(sb, struct super_block, s_dev);
	a->address = s->pgoff << PAGE_SHIFT;
	return CACHED;
}

/* Whether somebody maps a page of the folio. Both counts begin at -1. */
static __always_inline bool is_mapped(struct search *s, __u64 page)
{
	if (s->pages > 1)
		return FIELD(page, struct folio, _large_mapcount.counter) >= 0;
	return FIELD(page, struct folio, _mapcount.counter) >= 0;
}

/* Looks for the folio in the mappings of a file, or of anonymous memory that processes share. */
static __always_inline void search_mappings(struct search *s, __u64 mapping)
{
	if (s->anon)
		s->root = (__u64)FIELD(mapping, struct anon_vma, rb_root.rb_root.rb_node);
	else
		s->root = (__u64)FIELD(mapping, struct address_space, i_mmap.rb_root.rb_node);
	s->address = 0;
	s->node = 0;
	s->phase = RIGHT;
	/* Who maps one page often maps the next, and the tree may be large. */
	if (mapping == s->mapping) {
		s->in = s->last;
		if (s->in.first < s->pgoff + s->pages)
			inspect(s);
	}
	bpf_loop(WALK_STEPS_MAX, walk_step, NULL, 0);
	if (s->address) {
		s->mapping = mapping;
		s->last = s->in;
	}
}

static __always_inline enum verdict search_page(struct search *s, __u64 pfn, struct answer *a)
{
	__u64 page_bytes = bpf_core_type_size(struct page);
	__u64 page = head_page(layout.vmemmap + pfn * page_bytes);

	s->pfn = (page - layout.vmemmap) / page_bytes;
	a->head_pfn = s->pfn;
	if (FIELD(page, struct page, _refcount.counter) <= 0)
		return FREE;
	/* A page of a type (buddy, slab, page table...) has it instead of a map count. */
	if ((int)FIELD(page, struct page, page_type) < (int)0xff000000)
		return KERNEL;
	if (is_head(page))
		a->order = FIELD(page, struct folio, _flags_1) & 0x3f;

	__u64 mapping = (__u64)FIELD(page, struct page, mapping);

	if ((mapping & MAPPING_KSM) == MAPPING_KSM)
		return KSM;
	if (!(mapping & ~MAPPING_KSM))
		return KERNEL;
	s->anon = mapping & MAPPING_ANON;
	mapping &= ~MAPPING_KSM;
	s->pgoff = FIELD(page, struct folio, index);
	s->pages = 1ull << a->order;
	search_mappings(s, mapping);
	if (s->address) {
		a->address = s->address;
		a->tgid = s->in.tgid;
		return MAPPED;
	}
	if (s->anon || is_mapped(s, page))
		return NOT_FOUND;
	return name_file(s, mapping, a);
}

static long resolve_one(__u32 i, void *ctx)
{
	__u64 *pfn = bpf_map_lookup_elem(&pfns, &i);
	struct answer *answer = bpf_map_lookup_elem(&answers, &i);

	if (!pfn || !answer)
		return 1;

	struct answer a = {};

	a.verdict = search_page(&search, *pfn, &a);
	*answer = a;
	return 0;
}

extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;

SEC("syscall")
int resolve(struct request *request)
{
	__builtin_memset(&search, 0, sizeof(search));
	search.steps_left = CALL_STEPS_MAX;
	/* anon_vmas and VMAs are freed after a grace period: most reads meet live memory. */
	bpf_rcu_read_lock();
	bpf_loop(request->nr_pages, resolve_one, NULL, 0);
	bpf_rcu_read_unlock();
	return 0;
}

static long head_one(__u32 i, void *ctx)
{
	__u64 *pfn = bpf_map_lookup_elem(&pfns, &i);
	struct answer *answer = bpf_map_lookup_elem(&answers, &i);

	if (!pfn || !answer)
		return 1;

	__u64 page_bytes = bpf_core_type_size(struct page);
	__u64 page = head_page(layout.vmemmap + *pfn * page_bytes);
	struct answer a = { .head_pfn = (page - layout.vmemmap) / page_bytes };

	if (is_head(page))
		a.order = FIELD(page, struct folio, _flags_1) & 0x3f;
	*answer = a;
	return 0;
}

/* The heads of the folios that pages belong to, for sources that learn of single pages. */
SEC("syscall")
int heads(struct request *request)
{
	bpf_loop(request->nr_pages, head_one, NULL, 0);
	return 0;
}
