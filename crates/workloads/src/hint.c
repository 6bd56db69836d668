/* SPDX-License-Identifier: BSD-2-Clause */
/* An application in C that hints: the headers' functions, callable from Rust. */
#include <sched.h>

#include "pghot_hint_ring.h"

int hotset_hint_connect(const char *path)
{
	return pghot_hint_connect(path);
}

/* Pages that follow each other, from number `i` on. */
static size_t run_of(const uint32_t *pages, size_t nr, size_t i)
{
	size_t run = 1;

	while (i + run < nr && pages[i + run] == pages[i] + run)
		run++;
	return run;
}

/* Neighbouring pages make one range: the first range alone, the others in bulk. */
int hotset_hint_pages(int fd, char *base, const uint32_t *pages, size_t nr, size_t page_bytes)
{
	struct pghot_hint_range ranges[PGHOT_HINT_RANGES_MAX];
	size_t made = 0;
	int is_first = 1;

	for (size_t i = 0; i < nr;) {
		size_t run = run_of(pages, nr, i);

		if (is_first) {
			if (pghot_hint(fd, base + pages[i] * page_bytes, run * page_bytes))
				return -1;
			is_first = 0;
		} else {
			ranges[made].address = (uintptr_t)base + pages[i] * page_bytes;
			ranges[made].length = run * page_bytes;
			made++;
		}
		i += run;
		if (made == PGHOT_HINT_RANGES_MAX || i == nr) {
			if (pghot_hint_bulk(fd, ranges, made))
				return -1;
			made = 0;
		}
	}
	return 0;
}

/* A ring that stays open until the process ends. 0 or -1. */
static struct pghot_hint_ring ring;

int hotset_hint_ring_open(const char *path)
{
	return pghot_hint_ring_open(&ring, path);
}

/* The same through the ring, waiting while it is full. */
int hotset_hint_ring_pages(char *base, const uint32_t *pages, size_t nr, size_t page_bytes)
{
	for (size_t i = 0, run; i < nr; i += run) {
		run = run_of(pages, nr, i);
		while (pghot_hint_ring_push(&ring, base + pages[i] * page_bytes,
					    run * page_bytes)) {
			if (!pghot_hint_ring_is_connected(&ring)) {
				errno = EPIPE;
				return -1;
			}
			sched_yield();
		}
	}
	return 0;
}
