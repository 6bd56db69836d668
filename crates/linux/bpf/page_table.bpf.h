/* SPDX-License-Identifier: GPL-2.0-only */
/* Entries of x86-64 page tables, and the way down to them. */
#ifndef PGHOT_PAGE_TABLE_BPF_H
#define PGHOT_PAGE_TABLE_BPF_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#define PAGE_SHIFT     12
#define PMD_SHIFT      21
#define PUD_SHIFT      30
#define P4D_SHIFT      39
#define PGDIR_SHIFT_L5 48
#define PTRS_PER_TABLE 512

#define PTE_PRESENT        0x1ull
#define PTE_ACCESSED_SHIFT 5
#define PTE_ACCESSED       (1ull << PTE_ACCESSED_SHIFT)
#define PTE_HUGE           0x80ull
#define PTE_PROTNONE       0x100ull
#define PTE_PFN_MASK       0x000ffffffffff000ull
#define PMD_PFN_MASK       0x000fffffffe00000ull

/* An entry with its address as it is: that of a PROT_NONE one is stored inverted, against L1TF. */
static __always_inline __u64 upright_entry(__u64 entry)
{
	return entry & PTE_PRESENT ? entry : ~entry;
}

/* The page frame of an upright entry, of a table or, with PMD_PFN_MASK, of a huge page. */
static __always_inline __u64 entry_pfn(__u64 entry, __u64 mask)
{
	return (entry & mask) >> PAGE_SHIFT;
}

/* 0 if it cannot be read. */
static __always_inline __u64 entry_at(__u64 table, __u64 address, __u32 shift)
{
	__u64 entry = 0;
	__u64 at = table + 8 * (address >> shift & (PTRS_PER_TABLE - 1));

	bpf_probe_read_kernel(&entry, sizeof(entry), (void *)at);
	return entry;
}

/* Where the kernel sees the table that an entry points to. */
static __always_inline __u64 next_table(__u64 page_offset, __u64 entry)
{
	return page_offset + (entry & PTE_PFN_MASK);
}

/*
 * The entry above the lowest table: it points to that, or to a huge page of 2 MiB. 0 where there is
 * a hole, or a larger page, of 1 << *shift bytes.
 */
static __always_inline __u64 pmd_entry(__u64 pgd, __u64 address, __u64 page_offset,
				       __u32 pgdir_shift, __u32 *shift)
{
	__u64 entry = entry_at(pgd, address, pgdir_shift);

	*shift = pgdir_shift;
	if (!(entry & PTE_PRESENT))
		return 0;
	if (pgdir_shift == PGDIR_SHIFT_L5) {
		*shift = P4D_SHIFT;
		entry = entry_at(next_table(page_offset, entry), address, P4D_SHIFT);
		if (!(entry & PTE_PRESENT))
			return 0;
	}
	*shift = PUD_SHIFT;
	entry = entry_at(next_table(page_offset, entry), address, PUD_SHIFT);
	if (!(entry & PTE_PRESENT) || entry & PTE_HUGE)
		return 0;
	*shift = PMD_SHIFT;
	return entry_at(next_table(page_offset, entry), address, PMD_SHIFT);
}

#endif
