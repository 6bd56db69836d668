/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the kernel keeps its page structs and page tables, and what a page struct says of its
 * folio. For programs that walk by addresses, which are only numbers to the verifier.
 */
#ifndef PGHOT_LAYOUT_BPF_H
#define PGHOT_LAYOUT_BPF_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/*
 * Bases of the kernel's layout, from /proc/kallsyms. Kernels without address randomisation or
 * five-level page tables lack the variables and have constants. _stext is in every kernel: where
 * it has no address, /proc/kallsyms hides them all (it takes CAP_SYSLOG).
 */
extern const void vmemmap_base __ksym __weak;
extern const void page_offset_base __ksym __weak;
extern const void pgdir_shift __ksym __weak;
extern const void _stext __ksym __weak;

#define L4_PAGE_OFFSET 0xffff888000000000ull
#define L4_VMEMMAP     0xffffea0000000000ull
#define L5_PAGE_OFFSET 0xff11000000000000ull
#define L5_VMEMMAP     0xffd4000000000000ull

#define L4_PGDIR_SHIFT 39
#define L5_PGDIR_SHIFT 48

static __always_inline bool knows_addresses(void)
{
	return &_stext;
}

/* Address bits below the topmost page table. */
static __always_inline __u32 find_pgdir_shift(void)
{
	__u32 shift = L4_PGDIR_SHIFT;

	if (&pgdir_shift)
		bpf_probe_read_kernel(&shift, sizeof(shift), &pgdir_shift);
	return shift;
}

/* Where struct page 0 lies. */
static __always_inline __u64 find_vmemmap(__u32 shift)
{
	__u64 base = shift == L5_PGDIR_SHIFT ? L5_VMEMMAP : L4_VMEMMAP;

	if (&vmemmap_base)
		bpf_probe_read_kernel(&base, sizeof(base), &vmemmap_base);
	return base;
}

/* Where physical address 0 is mapped. */
static __always_inline __u64 find_page_offset(__u32 shift)
{
	__u64 base = shift == L5_PGDIR_SHIFT ? L5_PAGE_OFFSET : L4_PAGE_OFFSET;

	if (&page_offset_base)
		bpf_probe_read_kernel(&base, sizeof(base), &page_offset_base);
	return base;
}

/* Only the kernel fields that are used; CO-RE finds them in the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	unsigned long f;
} memdesc_flags_t;

struct page___head {
	unsigned long compound_head;
};

/* Since 6.19 the word behind a tail page's bit 0 may hold a mask instead of a pointer. */
struct page___info {
	unsigned long compound_info;
};

/* page->flags is a bare long up to 6.17 and a struct since. */
struct page___long {
	unsigned long flags;
};

struct page___memdesc {
	memdesc_flags_t flags;
};

enum pageflags { PG_head = 1 };

#pragma clang attribute pop

/* Reads a field of a kernel struct at an address that is only a number to the verifier. */
#define FIELD(address, type, field)                                                              \
	({                                                                                       \
		__typeof__(((type *)0)->field) _value = 0;                                       \
		bpf_probe_read_kernel(&_value, sizeof(_value),                                   \
				      (void *)((address) + bpf_core_field_offset(type, field))); \
		_value;                                                                          \
	})

static __always_inline __u64 page_flags(__u64 page)
{
	if (bpf_core_field_exists(struct page___memdesc, flags.f))
		return FIELD(page, struct page___memdesc, flags.f);
	return FIELD(page, struct page___long, flags);
}

static __always_inline bool is_head(__u64 page)
{
	return page_flags(page) >> bpf_core_enum_value(enum pageflags, PG_head) & 1;
}

/* The head of the page's folio; the page itself unless it is a tail. */
static __always_inline __u64 head_page(__u64 page)
{
	__u64 info;

	if (bpf_core_field_exists(struct page___info, compound_info))
		info = FIELD(page, struct page___info, compound_info);
	else
		info = FIELD(page, struct page___head, compound_head);
	if (!(info & 1))
		return page;
	if (info >> 32 == 0xffffffff && bpf_core_field_exists(struct page___info, compound_info) &&
	    !(info & 1ull << 31))
		return page & info & ~1ull;
	return info & ~1ull;
}

#endif
