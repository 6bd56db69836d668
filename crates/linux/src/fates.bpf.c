// SPDX-License-Identifier: GPL-2.0-only
// The accessed bits of single pages, by process and address: whether pages that were promoted are
// touched again.
//
// Reads page tables without their locks, as the resolver does: every read is fault-safe and may be
// stale, and what is wrong is one page of a sample. Nothing is changed.
//
// A `syscall` program (since 5.14), because it runs when user space asks, on a batch. Without it
// exchanges are judged by what hint faults tell alone.

#include "layout.bpf.h"
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "GPL";

/* Only the kernel fields that are used; CO-RE finds them in the running kernel. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct {
	void *pgd;
};

/* Complete, because libbpf compares the type with the kernel's where a kfunc returns it. */
struct task_struct {
	struct mm_struct *mm;
};

#pragma clang attribute pop

/* Kfuncs since 6.2. */
extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym;
extern void bpf_task_release(struct task_struct *task) __ksym;

#define SAMPLE_MAX 256

enum fate : __u32 {
	FATE_GONE = 1, /* nothing is mapped there, or it cannot be read */
	FATE_UNTOUCHED,
	FATE_TOUCHED,
};

struct sampled {
	__u64 address;
	__u32 pid;
	enum fate fate; /* out */
};

/* An mmapable array (since 5.5), so that a batch costs one system call and no copy. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SAMPLE_MAX);
	__type(key, __u32);
	__type(value, struct sampled);
} sample SEC(".maps");

struct look {
	__u32 nr_pages;
};

static __always_inline enum fate fate_of(__u64 pgd, __u64 address)
{
	__u32 shift;
	__u64 entry = pmd_entry(pgd, address, layout.page_offset, layout.pgdir_shift, &shift);

	if (entry & PTE_PRESENT && !(entry & PTE_HUGE))
		entry = entry_at(next_table(layout.page_offset, entry), address, PAGE_SHIFT);
	if (!(entry & PTE_PRESENT))
		return FATE_GONE;
	return entry & PTE_ACCESSED ? FATE_TOUCHED : FATE_UNTOUCHED;
}

static long look_at_one(__u32 i, void *ctx)
{
	struct sampled *page = bpf_map_lookup_elem(&sample, &i);
	struct task_struct *task;
	__u64 pgd;

	if (!page)
		return 1;
	page->fate = FATE_GONE;
	task = bpf_task_from_pid(page->pid);
	if (!task)
		return 0;
	pgd = (__u64)BPF_CORE_READ(task, mm, pgd);
	bpf_task_release(task);
	if (pgd)
		page->fate = fate_of(pgd, page->address);
	return 0;
}

SEC("syscall")
int look_at(struct look *look)
{
	bpf_loop(look->nr_pages, look_at_one, NULL, 0);
	return 0;
}
