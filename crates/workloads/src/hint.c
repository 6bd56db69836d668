/* SPDX-License-Identifier: BSD-2-Clause */
/* An application in C that hints: the header's functions, callable from Rust. */
#include "pghot_hint.h"

int hotset_hint_connect(const char *path)
{
	return pghot_hint_connect(path);
}

/* Neighbouring pages make one range: the first range alone, the others in bulk. */
int hotset_hint_pages(int fd, char *base, const uint32_t *pages, size_t nr, size_t page_bytes)
{
	struct pghot_hint_range ranges[PGHOT_HINT_RANGES_MAX];
	size_t made = 0;
	int is_first = 1;

	for (size_t i = 0; i < nr;) {
		size_t run = 1;

		while (i + run < nr && pages[i + run] == pages[i] + run)
			run++;
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
