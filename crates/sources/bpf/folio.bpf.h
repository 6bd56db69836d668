/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a folio says of itself, for programs that the kernel hands one as an argument. Such an
 * argument is a typed pointer that a program may follow by itself; reading by helper would cost a
 * call for each field.
 */
#ifndef PGHOT_FOLIO_BPF_H
#define PGHOT_FOLIO_BPF_H

#include "page.bpf.h"

/* Only the kernel fields that are used; CO-RE finds them in the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct folio {
	void *mapping;
	atomic_t _mapcount;
	unsigned long _flags_1;
};

struct folio___long {
	unsigned long flags;
};

struct folio___memdesc {
	memdesc_flags_t flags;
};

/* Since 6.10. */
struct folio___large {
	atomic_t _large_mapcount;
};

/* Only its size is used. */
struct page {
	unsigned long compound_head;
};

#pragma clang attribute pop

static __always_inline unsigned long folio_flags(struct folio *folio)
{
	if (bpf_core_field_exists(struct folio___memdesc, flags.f))
		return ((struct folio___memdesc *)folio)->flags.f;
	return ((struct folio___long *)folio)->flags;
}

static __always_inline __u32 folio_order(struct folio *folio, unsigned long flags)
{
	if (!(flags >> bpf_core_enum_value(enum pageflags, PG_head) & 1))
		return 0;
	/* The low byte of the second page's flags (folio_large_order). */
	return folio->_flags_1 & 0x3f;
}

/* Entries that map it; where the kernel does not count those of large folios, `unknown`. */
static __always_inline int folio_mapcount(struct folio *folio, __u32 order, int unknown)
{
	/* Counts begin at -1. */
	if (!order)
		return folio->_mapcount.counter + 1;
	if (bpf_core_field_exists(struct folio___large, _large_mapcount))
		return ((struct folio___large *)folio)->_large_mapcount.counter + 1;
	return unknown;
}

#define MAPPING_ANON  0x1 /* anonymous memory */
#define MAPPING_FLAGS 0x3 /* that, or pages of drivers */

/* The pointer with its flags, as a number: the verifier allows no look at a pointer's bits. */
static __always_inline __u64 folio_mapping_bits(struct folio *folio)
{
	__u64 mapping = 0;

	bpf_core_read(&mapping, sizeof(mapping), &folio->mapping);
	return mapping;
}

#endif
