/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a page struct says of its folio. For programs that walk by addresses, which are only numbers
 * to the verifier.
 */
#ifndef PGHOT_PAGE_BPF_H
#define PGHOT_PAGE_BPF_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

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
