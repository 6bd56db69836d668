/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where the kernel keeps its page structs and page tables. Each object that needs to know is told
 * once, right after it was loaded: by find_layout(), which its loader calls.
 */
#ifndef PGHOT_LAYOUT_BPF_H
#define PGHOT_LAYOUT_BPF_H

#include "page_table.bpf.h"

#define L4_PAGE_OFFSET 0xffff888000000000ull
#define L4_VMEMMAP     0xffffea0000000000ull
#define L5_PAGE_OFFSET 0xff11000000000000ull
#define L5_VMEMMAP     0xffd4000000000000ull

SEC(".data.layout") static volatile struct {
	__u64 vmemmap;     /* where struct page 0 lies */
	__u64 page_offset; /* where physical address 0 is mapped */
	__u32 pgdir_shift; /* address bits below the topmost page table */
} layout;

/* The address of a symbol of the kernel, 0 if it has none or hides it. */
#define ADDRESS_OF(symbol)                                                                       \
	({                                                                                       \
		char _name[] = #symbol;                                                          \
		__u64 _address = 0;                                                              \
		bpf_kallsyms_lookup_name(_name, sizeof(_name), 0, (void *)&_address) ? 0         \
										     : _address; \
	})

/* The value of a variable of the kernel, or `otherwise` if it has none of that name. */
#define VALUE_OF(variable, otherwise)                                                \
	({                                                                           \
		__typeof__(otherwise) _value = otherwise;                            \
		__u64 _at = ADDRESS_OF(variable);                                    \
		if (_at)                                                             \
			bpf_probe_read_kernel(&_value, sizeof(_value), (void *)_at); \
		_value;                                                              \
	})

/*
 * Kernels without address randomisation or five-level page tables lack the variables and have
 * constants. _stext is in every kernel: where it has no address, the kernel hides them all (it
 * takes CAP_SYSLOG). The helper exists for programs of this type alone, since 5.16; declaring the
 * variables __ksym instead has libbpf read all of /proc/kallsyms, for each object once more.
 */
enum layout_result {
	LAYOUT_FOUND,
	LAYOUT_HIDDEN,
};

SEC("syscall")
enum layout_result find_layout(void *ctx)
{
	if (!ADDRESS_OF(_stext))
		return LAYOUT_HIDDEN;

	__u32 shift = VALUE_OF(pgdir_shift, (__u32)P4D_SHIFT);
	bool is_five_level = shift == PGDIR_SHIFT_L5;

	layout.pgdir_shift = shift;
	layout.vmemmap = VALUE_OF(vmemmap_base, is_five_level ? L5_VMEMMAP : L4_VMEMMAP);
	layout.page_offset =
		VALUE_OF(page_offset_base, is_five_level ? L5_PAGE_OFFSET : L4_PAGE_OFFSET);
	return LAYOUT_FOUND;
}

#endif
